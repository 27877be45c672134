"""The settings, validated once, all problems reported together.

Each comes from an option of `perdure serve`, else from the environment (`PERDURE_` and the name in capitals), else
from the default here. docs/reference/settings.md lists them.
"""

import enum
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import platformdirs
from msgspec import Meta

from perdure.domain import limits
from perdure.domain.errors import RefusedToStart
from perdure.domain.recovery import OnRestart

PREFIX = "PERDURE_"
_PATHS = ("data", "model")
IDLE_SECONDS_OF_SEVERAL = 300.0
_UNITS = ("bytes", "days", "seconds", "tokens", "tasks")


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
    models_memory_max_bytes: Annotated[int, Meta(ge=1024**2)] | None = None
    model_idle_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] | Literal["forever"] | None = None
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
    def model_files(self) -> list[Path]:
        """The GGUF files to serve in place of the bundled model."""
        return [Path(path) for path in self.model.split(os.pathsep)] if self.model else []

    @property
    def idle_seconds(self) -> float | None:
        """How long a model that nobody uses stays loaded; None is as long as no other needs its memory. One that is
        alone makes room for nobody, and its next user would wait for it."""
        if self.model_idle_seconds is None:
            return IDLE_SECONDS_OF_SEVERAL if len(self.model_files) > 1 else None
        return None if self.model_idle_seconds == "forever" else self.model_idle_seconds

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


def load(given: Mapping[str, object], environ: Mapping[str, str] = os.environ, *, strict: bool = False) -> Settings:
    """The settings; options that are None were not given.

    Raises `RefusedToStart` with every problem in one line: values that do not fit, and variables that look like
    settings and are none (a misspelt setting would otherwise have no effect, in silence). If not `strict`, as for
    commands that need only the data folder, what lies in the environment and does not lead to another folder is no
    reason to refuse: it has no effect, and `passed_over` tells it.
    """
    chosen, problems = _read(given, environ)
    told = [problem.told for problem in problems if strict or problem.refuses]
    if told:
        raise RefusedToStart(f"The settings cannot be used: {'; '.join(told)}.")
    return Settings(**chosen)


def passed_over(given: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> list[str]:
    """What has no effect on a command that is not strict, a line each."""
    return [f"{problem.told}; it has no effect here." for problem in _read(given, environ)[1] if not problem.refuses]


class _Problem(msgspec.Struct, frozen=True):
    """What is wrong, and whether every command refuses it."""

    told: str
    refuses: bool


def _read(given: Mapping[str, object], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[_Problem]]:
    """What was chosen, and what is wrong."""
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    chosen: dict[str, Any] = {}
    problems = list(_strays(given, environ, [_variable(name) for name in fields]))
    for name, field in fields.items():
        raw, source = given.get(name), f"--{name}"
        if is_option := raw is not None:
            pass
        elif raw := environ.get(_variable(name)):
            source = _variable(name)
        else:
            continue
        try:
            value = msgspec.convert(raw, field.type, strict=False)
            chosen[name] = _paths(name, value) if name in _PATHS else value
        except (msgspec.ValidationError, _BadPath) as error:
            why = str(error) if isinstance(error, _BadPath) else f"must be {_wanted(field.type, name)}"
            problems.append(_Problem(f"{source} is {raw!r}: {why}", refuses=is_option or name == "data"))
    return chosen, problems


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _strays(given: Mapping[str, object], environ: Mapping[str, str], known: list[str]) -> Iterator[_Problem]:
    """Variables that look like settings and are none. One that may have meant the data folder refuses where nothing
    else names it: a backup of another folder would be worse than none."""
    folder = _variable("data")
    named = given.get("data") is not None or bool(environ.get(folder))
    for stray in sorted(name for name in environ if name.startswith(PREFIX) and name not in known):
        near = _nearest(stray, known)
        meant = f" (did you mean {near}?)" if near else ""
        yield _Problem(f"{stray} is no setting{meant}", refuses=near == folder and not named)


def _nearest(stray: str, known: list[str]) -> str | None:
    import difflib  # not worth its time otherwise

    names = {name.removeprefix(PREFIX): name for name in known}
    word = stray.removeprefix(PREFIX).upper()
    longer = [name for name in names if word.startswith(f"{name}_")]  # DATA_FOLDER
    near = longer or difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return names[near[0]] if near else None


class _BadPath(ValueError):
    """A path that leads nowhere."""


def _paths(name: str, value: str) -> str | None:
    """Whole paths in place of what was given: of models there may be several."""
    if name != "model":
        return _whole(value)
    return os.pathsep.join(filter(None, map(_whole, filter(None, value.split(os.pathsep)))))


def _whole(path: str | None) -> str | None:
    """A path with the user's home in place of `~`, and from the root on: it is printed in commands that are tried
    elsewhere."""
    if path is None:
        return None
    expanded = os.path.expanduser(path)  # noqa: PTH111 -- that of pathlib raises where there is no such user
    if expanded.startswith("~"):
        raise _BadPath("no such user is known (`./~` begins the name of a file that is called so)")
    try:
        return str(Path(expanded).absolute())
    except OSError:
        raise _BadPath("the current folder is gone; name it from the root on") from None


def _wanted(kind: Any, name: str) -> str:
    """What a setting takes, in words, from its type; the unit is the last word of its name."""
    if get_origin(kind) is Annotated:
        base, meta = get_args(kind)
        return _wanted(base, name) + _range(meta)
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        words = [str(each) for each in (get_args(kind) or kind)]
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    if parts := get_args(kind):
        return ", or ".join(_wanted(part, name) for part in parts)
    if kind in (int, float):
        unit = name.rpartition("_")[2]
        return ("a whole number" if kind is int else "a number") + (f" of {unit}" if unit in _UNITS else "")
    return {bool: "true or false", type(None): "not set"}.get(kind, "a text")


def _range(meta: Meta) -> str:
    """The bounds of a number."""
    if meta.gt is not None:
        return f" above {meta.gt}, at most {meta.le}"
    return f" from {meta.ge} to {meta.le}" if meta.le is not None else f", at least {meta.ge}"
