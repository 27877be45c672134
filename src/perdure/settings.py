"""The settings, validated once, all problems reported together.

Each comes from `perdure serve`'s options, else from the environment (`PERDURE_` and the name in capitals), else from
the default here. docs/reference/settings.md lists them.
"""

from pathlib import Path

import platformdirs
from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from perdure.domain import limits
from perdure.domain.errors import RefusedToStart
from perdure.domain.recovery import OnRestart


class Settings(BaseSettings):
    """One frozen object; durations in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="PERDURE_", frozen=True, extra="forbid")

    data: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("perdure")))
    host: str = "127.0.0.1"
    port: int = Field(default=8383, ge=0, le=65535)
    model: Path | None = None
    slots: int = Field(default=4, ge=1, le=64)
    window_tokens: int = Field(default=4096, ge=64, le=1_048_576)
    kv_memory_max_bytes: int = Field(default=4 * 1024**3, ge=1024**2)
    threads: int = Field(default=1, ge=1, le=256)
    body_max_bytes: int = Field(default=limits.BODY_MAX_BYTES, ge=1024)
    queue_max_tasks: int = Field(default=limits.QUEUE_LENGTH_MAX_TASKS, ge=1)
    crashes_max: int = Field(default=limits.CRASHES_MAX, ge=1)
    on_restart_background: OnRestart = OnRestart.RESUME
    on_restart_foreground: OnRestart = OnRestart.FAIL
    drain_seconds: float = Field(default=8.0, ge=0)
    close_seconds: float = Field(default=10.0, ge=0)
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")

    @property
    def database(self) -> Path:
        """The one file that holds the state."""
        return self.data / "perdure.db"

    @property
    def token_file(self) -> Path:
        """Where the first start writes the owner's token."""
        return self.data / "owner.token"


def load(**given: object) -> Settings:
    """The settings; options that are None were not given. Raises `RefusedToStart` with every problem in one line."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # pyright: ignore[reportArgumentType] -- pydantic validates them
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise RefusedToStart(f"settings not usable: {problems}") from None
