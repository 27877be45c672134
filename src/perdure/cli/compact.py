"""`perdure compact`."""

import json

from perdure.cli.care import Bar, careful, chosen, held, size
from perdure.cli.failures import EXIT_DONE, CommandFailed
from perdure.cli.output import Output
from perdure.storage.sqlite.compact import compact as rebuild


def compact(data: str | None, *, as_json: bool) -> int:
    """Give the free pages of a stopped service's database back to the disk."""
    found = chosen(data)
    if not found.database.is_file():
        raise CommandFailed(f"There is no database {found.database}; name the data folder with --data.")
    with careful(), held(found), Bar("compacting"):
        made = rebuild(found.database)
    output = Output()
    if as_json:
        facts = {"object": "compaction", "before_bytes": made.before_bytes, "after_bytes": made.after_bytes}
        output.json(json.dumps(facts).encode())
    else:
        output.text(f"{size(made.before_bytes)} before, {size(made.after_bytes)} now\n")
    return EXIT_DONE
