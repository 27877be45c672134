"""`perdure backup` and `perdure restore`."""

import json
import time

from perdure.ambient.folder import LOCK_NAME
from perdure.cli.care import Bar, absolute, careful, chosen, commands_on, held, size
from perdure.cli.contact import Folder
from perdure.cli.failures import EXIT_DONE, CommandFailed
from perdure.cli.output import Output, counted, note
from perdure.settings import Settings
from perdure.storage.sqlite import backup as copies
from perdure.storage.sqlite.backup import RESTORING, Backup
from perdure.storage.sqlite.checked import require_file
from perdure.storage.sqlite.doctor import DAY_SECONDS


def backup(data: str | None, file: str, *, as_json: bool) -> int:
    """Copy the database into a new file, whether a service runs or not."""
    _refuse_stream(file, "made")
    found, target = chosen(data), absolute(file)
    with careful(commands_on(data)):
        require_file(found.database)
        for left in copies.left_over(target):
            note(f"{left} was left by a backup that was killed; delete it.")
        with Bar("backup") as told:
            made = copies.back_up(found.database, target, told)
    _tell(made, as_json=as_json)
    if found.folder.resolve() in target.resolve().parents:
        note(f"{target} lies in the data folder and is lost together with it; keep a copy elsewhere.")
    return EXIT_DONE


def restore(data: str | None, file: str, *, as_json: bool) -> int:
    """Make a backup the database of an empty data folder."""
    _refuse_stream(file, "read")
    found, source = chosen(data), absolute(file)
    with careful(commands_on(None)):
        copies.refuse_unusable(source)  # before a folder is made for it
        with held(found), Bar("restore") as told:
            _refuse_filled(found)
            made = copies.restore(source, found.database, told)
            days, aged = _aged(found)
    _tell(made, as_json=as_json)
    if made.contents.unfinished:
        left = counted(made.contents.unfinished, "unfinished response")
        note(f"{left}: each goes on, or ends, as its on_restart says.")
    if aged:
        note(
            f"{aged:,} of these ended more than {days:g} days ago and go at the next start; "
            "PERDURE_RETENTION_DAYS=forever keeps them."
        )
    note(
        f"The next {Folder(data).command('serve')} makes a new owner's token, unless you copy the owner.token that "
        f"belongs to the backup to {found.token_file} before. A service that still runs elsewhere keeps its own."
    )
    return EXIT_DONE


def _refuse_stream(file: str, done: str) -> None:
    if file == "-":
        raise CommandFailed(
            f"A backup is {done} as a file, since it is checked as one; name it (`./-` for that name)."
        )


def _aged(found: Settings) -> tuple[float, int]:
    """How many days finished responses stay here, and how many are older."""
    seconds = found.retention_seconds
    if seconds is None:
        return 0, 0
    return seconds / DAY_SECONDS, copies.outlived(found.database, time.time() - seconds)


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
    else:
        output.text(
            f"{made.path}\n{size(made.size_bytes)} ({made.size_bytes:,} bytes), SHA-256 {made.sha256}\n"
            f"{counted(held_there.responses, 'response')}, {held_there.unfinished:,} unfinished\n"
        )
    for folder in made.unforced:
        output.note(
            f"{made.path} is there and whole; whether its name in {folder} survives a power cut is not known, as "
            "that folder could not be forced to the disk."
        )
