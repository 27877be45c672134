"""`perdure doctor`."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from perdure.ambient import folder_findings
from perdure.ambient.folder import LOCK_NAME
from perdure.cli.care import careful, chosen, commands_on
from perdure.cli.contact import serves
from perdure.cli.failures import EXIT_DONE, EXIT_FAILED
from perdure.cli.output import Output, counted, visible
from perdure.domain.finding import Finding, Level, note, ok, problem
from perdure.settings import Settings
from perdure.storage.sqlite import doctor as database


def doctor(data: str | None, *, as_json: bool) -> int:
    """Look at a data folder and change nothing; returns whether there are problems."""
    found = chosen(data)
    with careful():
        findings = [_as_called(each, commands_on(data)) for each in examine(found)]
    _tell(found.folder, findings, as_json=as_json)
    return EXIT_FAILED if any(each.level is Level.PROBLEM for each in findings) else EXIT_DONE


def _as_called(found: Finding, as_called: Callable[[str], str]) -> Finding:
    return replace(found, message=as_called(found.message), remedy=found.remedy and as_called(found.remedy))


def examine(found: Settings) -> list[Finding]:
    """Everything that there is to say."""
    findings = [database.sqlite_finding(), *folder_findings.examine(found.folder, found.database.name)]
    if not found.folder.is_dir():
        return findings
    pid = folder_findings.holder(found.folder)
    served = pid is not None and serves(pid, found.folder / LOCK_NAME)
    findings.append(_service(found, pid if served else None))
    token = _token(found.token_file)
    if isinstance(token, Finding):
        findings.append(token)
        token = None
    if barred := database.barred(found.database, served=served):
        return [*findings, barred]
    lost = folder_findings.lost(found.folder, found.database.name, served=served)
    if lost and (served or lost.check == "database"):  # what the service still has open, nobody else can see
        return [*findings, lost]
    return findings + database.examine(
        found.database, database.Circumstances(token, found.retention_seconds, served, lost)
    )


def _service(found: Settings, pid: int | None) -> Finding:
    """Who holds the folder, and whether that is who is said to."""
    try:
        told = folder_findings.named_in(found.server_file)
    except (OSError, ValueError) as error:
        return note("service", f"server.json cannot be read ({error})", "Restart the service, which writes it anew.")
    if pid is None and told is not None:
        return _left_by(found, told)
    if pid is None:
        return ok("service", "no service runs on this folder")
    if told not in (None, pid):
        return note(
            "service", f"process {pid} holds the folder and server.json names {told}", "Wait until it has started."
        )
    return ok("service", f"process {pid} holds the folder")


def _left_by(found: Settings, pid: int) -> Finding:
    """Of a service that is not there. Each leaves a log, until a backup, a compaction or a start takes that up."""
    log, index = (found.database.with_name(found.database.name + ending) for ending in ("-wal", "-shm"))
    remedy = "The next `perdure serve` takes up what is there."
    if not log.exists() and not index.exists():  # an index alone is a problem of its own
        remedy += f" If {log.name} was removed, by a copy without it or by hand, bring it back before."
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        told = f"no service runs; server.json was left by process {pid}, which was killed"
    else:
        told = (
            f"no service runs on this folder; process {pid} of its server.json runs and does not hold it: the folder "
            "is a copy of another, or that process is another program"
        )
    return note("service", told, remedy)


def _token(path: Path) -> str | Finding:
    try:
        return folder_findings.text_of(path).strip()
    except FileNotFoundError:
        return note("token", "there is no owner's token", "The next `perdure serve` makes one.")
    except (OSError, ValueError) as error:
        return problem(
            "token", f"the owner's token cannot be read ({error})", f"Delete {path}; the next start makes a new one."
        )


def _tell(folder: Path, findings: Sequence[Finding], *, as_json: bool) -> None:
    output = Output()
    count = {level: sum(each.level is level for each in findings) for level in Level}
    if as_json:
        facts = {
            "object": "doctor",
            "data_folder": str(folder),
            "problems": count[Level.PROBLEM],
            "notes": count[Level.NOTE],
            "findings": [asdict(each) for each in findings],
        }
        output.json(json.dumps(facts, ensure_ascii=False).encode())
        return
    width = max(len(each.check) for each in findings)
    for level in Level:
        for each in (each for each in findings if each.level is level):
            output.text(f"{level:7}  {each.check.ljust(width)}  {visible(each.message)}\n")
            if each.remedy:
                output.text(f"{'':9}{'':{width}}  {visible(each.remedy)}\n")
    output.text(f"{counted(count[Level.PROBLEM], 'problem')}, {counted(count[Level.NOTE], 'note')}\n")
