"""`perdure backup` and `perdure restore`."""

import json

from perdure.ambient.folder import LOCK_NAME
from perdure.cli.care import Bar, absolute, careful, chosen, held, size
from perdure.cli.contact import Folder
from perdure.cli.failures import EXIT_DONE, CommandFailed
from perdure.cli.output import Output, counted, note
from perdure.settings import Settings
from perdure.storage.sqlite import backup as copies
from perdure.storage.sqlite.backup import RESTORING, Backup


def backup(data: str | None, file: str, *, as_json: bool) -> int:
    """Copy the database into a new file, whether a service runs or not."""
    found, target = chosen(data), absolute(file)
    if not found.database.is_file():
        raise CommandFailed(f"There is no database {found.database}; name the data folder with --data.")
    for left in copies.left_over(target):
        note(f"{left} was left by a backup that was killed; delete it.")
    with careful(), Bar("backup") as told:
        made = copies.back_up(found.database, target, told)
    _tell(made, as_json=as_json)
    return EXIT_DONE


def restore(data: str | None, file: str, *, as_json: bool) -> int:
    """Make a backup the database of an empty data folder."""
    found, source = chosen(data), absolute(file)
    with careful():
        copies.refuse_unusable(source)  # before a folder is made for it
        with held(found), Bar("restore") as told:
            _refuse_filled(found)
            made = copies.restore(source, found.database, told)
    _tell(made, as_json=as_json)
    if made.contents.unfinished:
        left = counted(made.contents.unfinished, "unfinished response")
        note(f"{left}: each goes on, or ends, as its on_restart says.")
    note(f"The next {Folder(data).command('serve')} makes a new owner's token; the old one ends then.")
    return EXIT_DONE


def _refuse_filled(found: Settings) -> None:
    """Nothing is ever written over: a database, a log that belongs to another one, or anything else."""
    free = {LOCK_NAME, found.database.name + RESTORING}
    if there := sorted(each.name for each in found.folder.iterdir() if each.name not in free):
        shown = ", ".join(there[:3]) + (" …" if len(there) > 3 else "")
        raise CommandFailed(
            f"The data folder {found.folder} is not empty ({shown}); nothing was done. Move it away and keep it, or "
            "name a new one with --data."
        )


def _tell(made: Backup, *, as_json: bool) -> None:
    output, held_there = Output(), made.contents
    if as_json:
        facts = {
            "object": "backup",
            "path": str(made.path),
            "size_bytes": made.size_bytes,
            "sha256": made.sha256,
            "responses": held_there.responses,
            "unfinished": held_there.unfinished,
            "schema": held_there.schema,
        }
        output.json(json.dumps(facts, ensure_ascii=False).encode())
        return
    output.text(
        f"{made.path}\n{size(made.size_bytes)} ({made.size_bytes:,} bytes), SHA-256 {made.sha256}\n"
        f"{counted(held_there.responses, 'response')}, {held_there.unfinished:,} unfinished\n"
    )
