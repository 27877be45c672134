"""`perdure compact`."""

import json

from perdure.cli.care import Bar, careful, chosen, commands_on, held, size
from perdure.cli.contact import Folder
from perdure.cli.failures import EXIT_DONE
from perdure.cli.output import Output, note
from perdure.storage.sqlite.checked import require_file
from perdure.storage.sqlite.compact import compact as rebuild


def compact(data: str | None, *, as_json: bool) -> int:
    """Give the free pages of a stopped service's database back to the disk."""
    found = chosen(data)
    with careful(commands_on(data)):
        require_file(found.database)  # before a folder is made for it
        with held(found, in_use="Stop that one first."), Bar("compacting"):
            made = rebuild(found.database)
    output = Output()
    if as_json:
        facts = {"object": "compaction", "before_bytes": made.before_bytes, "after_bytes": made.after_bytes}
        output.json(json.dumps(facts).encode())
    else:
        output.text(f"{size(made.before_bytes)} before, {size(made.after_bytes)} now\n")
    if not made.later and made.after_bytes >= made.before_bytes:
        note("There were no free pages to give back.")
    if made.later:
        note(
            f"Another program reads {found.database}: the file shrinks when it ends, or with the next "
            f"{Folder(data).command('serve')}."
        )
    return EXIT_DONE
