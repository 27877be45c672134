"""The settings, validated once, all problems reported together.

Each comes from an option of `perdure serve`, else from the environment (`PERDURE_` and the name in capitals), else
from the default here. docs/reference/settings.md lists them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import platformdirs
from msgspec import Meta

from perdure.domain import limits
from perdure.domain.errors import RefusedToStart
from perdure.domain.recovery import OnRestart

PREFIX = "PERDURE_"


def _default_folder() -> str:
    return platformdirs.user_data_dir("perdure")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One frozen object; durations in seconds, sizes in bytes."""

    data: str = msgspec.field(default_factory=_default_folder)
    allow_network_folder: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8383
    model: str | None = None
    slots: Annotated[int, Meta(ge=1, le=limits.SLOTS_MAX)] = 4
    window_tokens: Annotated[int, Meta(ge=64, le=1_048_576)] = 4096
    kv_memory_max_bytes: Annotated[int, Meta(ge=1024**2)] = 4 * 1024**3
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    body_max_bytes: Annotated[int, Meta(ge=1024)] = limits.BODY_MAX_BYTES
    queue_max_tasks: Annotated[int, Meta(ge=1)] = limits.QUEUE_LENGTH_MAX_TASKS
    crashes_max: Annotated[int, Meta(ge=1)] = limits.CRASHES_MAX
    on_restart_background: OnRestart = OnRestart.RESUME
    on_restart_foreground: OnRestart = OnRestart.FAIL
    retention_days: Annotated[float, Meta(gt=0, le=36_500)] | Literal["forever"] = limits.RETENTION_DAYS_DEFAULT
    database_max_bytes: Annotated[int, Meta(ge=limits.DATABASE_MAX_BYTES_MIN)] | None = None
    drain_seconds: Annotated[float, Meta(ge=0, le=3600)] = 8.0
    stop_work_seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    stop_callers_seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    stop_models_seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    stop_database_seconds: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data)

    @property
    def model_file(self) -> Path | None:
        """The GGUF file to serve in place of the bundled model."""
        return Path(self.model) if self.model else None

    @property
    def database(self) -> Path:
        """The one file that holds the state."""
        return self.folder / "perdure.db"

    @property
    def retention_seconds(self) -> float | None:
        """How long finished responses stay; None is for ever."""
        return None if self.retention_days == "forever" else self.retention_days * 24 * 3600

    @property
    def token_file(self) -> Path:
        """Where the first start writes the owner's token."""
        return self.folder / "owner.token"

    @property
    def server_file(self) -> Path:
        """Where the running service tells its process and its address."""
        return self.folder / "server.json"


def load(given: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings; options that are None were not given.

    Raises `RefusedToStart` with every problem in one line: values that do not fit, and variables that look like
    settings and are none (a misspelt setting would otherwise have no effect, in silence).
    """
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    chosen: dict[str, Any] = {}
    known = {f"{PREFIX}{name.upper()}" for name in fields}
    problems = [f"{name} is no setting" for name in sorted(environ) if name.startswith(PREFIX) and name not in known]
    for name, field in fields.items():
        variable = f"{PREFIX}{name.upper()}"
        raw, source = given.get(name), f"--{name}"
        if raw is None:
            raw, source = environ.get(variable) or None, variable
        if raw is None:
            continue
        try:
            chosen[name] = msgspec.convert(raw, field.type, strict=False)
        except msgspec.ValidationError as error:
            problems.append(f"{source} is {raw!r}{_told(str(error))}")
    if problems:
        raise RefusedToStart(f"The settings cannot be used: {'; '.join(problems)}.")
    return Settings(**chosen)


def _told(error: str) -> str:
    """Why a value does not fit, in the words of people where the library names its types."""
    if error.endswith("got `str`"):
        for kind, meant in (("int", "a whole number"), ("float", "a number"), ("bool", "true or false")):
            if error.startswith(f"Expected `{kind}`"):
                return f", which is not {meant}"
    return f": {error[:1].lower()}{error[1:]}"
