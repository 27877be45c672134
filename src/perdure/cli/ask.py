"""`perdure ask`: a background response, so that nothing but a cancel ends it, read as it is written."""

import sys
from http import HTTPStatus
from typing import Any

from perdure.cli.contact import Answer, Folder, Service
from perdure.cli.failures import EXIT_DONE, Away, CommandFailed, OutputFailed, Refused, Unknown
from perdure.cli.follow import Watch, left
from perdure.cli.output import Output, note
from perdure.cli.signals import listen
from perdure.domain import limits

STANDARD_INPUT = "-"
_BYTES_MAX = 4 * limits.INPUT_TEXT_MAX_CHARS


def ask(folder: Folder, text: str, fields: dict[str, Any], *, leave: bool, as_json: bool, wait: float | None) -> int:
    """Ask; returns the exit code. Fields that are None were not given."""
    listen()
    service = folder.service()
    asked = {name: value for name, value in fields.items() if value is not None}
    asked |= {"input": _standard_input() if text == STANDARD_INPUT else text, "background": True}
    if "model" not in asked:
        asked["model"] = _first_model(folder, service)
    try:
        accepted = _accepted(folder, service, asked)
    except KeyboardInterrupt:
        note(_not_known(folder))
        raise
    if leave:
        return _named(folder, accepted, as_json)
    ident = accepted.json()["id"]
    return Watch(folder, ident, after=-1, as_json=as_json, wait_seconds=wait, background=True).run()


def _named(folder: Folder, accepted: Answer, as_json: bool) -> int:
    """Write the name of what was accepted; if that fails, it is told on standard error."""
    ident = accepted.json()["id"]
    try:
        if as_json:
            Output().json(accepted.body)
        else:
            Output().text(f"{ident}\n")
    except OutputFailed as failed:
        raise Unknown(f"{failed} {left(folder, ident, kept=True)}") from None
    except (KeyboardInterrupt, BrokenPipeError):
        note(left(folder, ident, kept=True))
        raise
    return EXIT_DONE


def _accepted(folder: Folder, service: Service, asked: dict[str, Any]) -> Answer:
    """Send it once: a second one would be a second response."""
    try:
        answer = service.post("/v1/responses", asked)
        answer.json()
    except Away as lost:
        raise Unknown(f"{lost} {_not_known(folder)}") from None
    except Refused as refusal:
        if refusal.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unknown(f"{refusal} {_not_known(folder)}") from None
        if refusal.code == "model_not_found":
            names = ", ".join(_models(service)) or "none"
            raise CommandFailed(f"There is no model {asked['model']} here; --model takes: {names}.") from None
        raise
    return answer


def _not_known(folder: Folder) -> str:
    return (
        "Whether the question was accepted is not known, so it was not sent again; "
        f"{folder.command('tasks')} shows it if it was."
    )


def _first_model(folder: Folder, service: Service) -> str:
    for name in _models(service):
        return name
    raise CommandFailed(f"The service has no model; start it with one: {folder.command('serve --model FILE')}.")


def _models(service: Service) -> list[str]:
    return [model["id"] for model in service.get("/v1/models").json()["data"]]


def _standard_input() -> str:
    """All of it, but for one line end at its end, which `echo` adds."""
    given = sys.stdin.buffer.read(_BYTES_MAX + 1)
    if len(given) > _BYTES_MAX:
        raise CommandFailed(
            f"Standard input is longer than a text may be ({limits.INPUT_TEXT_MAX_CHARS:,} characters)."
        )
    try:
        return given.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise CommandFailed(f"Standard input is not UTF-8 (at byte {error.start}).") from None
