"""The settings: what is refused, in which words, and by whom."""

import enum
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.domain.errors import RefusedToStart
from perdure.settings import PREFIX, Settings, load, passed_over

FIELDS = msgspec.structs.fields(Settings)
WANTED = {
    "allow_network_folder": "true or false",
    "port": "a whole number from 0 to 65535",
    "slots": "a whole number from 1 to 32",
    "window_tokens": "a whole number of tokens from 64 to 1048576",
    "kv_memory_max_bytes": "a whole number of bytes, at least 1048576",
    "models_memory_max_bytes": "a whole number of bytes, at least 1048576, or not set",
    "model_idle_seconds": "a number of seconds above 0, at most 31536000, or forever, or not set",
    "threads": "a whole number from 1 to 256",
    "body_max_bytes": "a whole number of bytes, at least 1024",
    "queue_max_tasks": "a whole number of tasks, at least 1",
    "crashes_max": "a whole number, at least 1",
    "on_restart_background": "one of fail, retry, resume",
    "on_restart_foreground": "one of fail, retry, resume",
    "retention_days": "a number of days above 0, at most 36500, or forever",
    "database_max_bytes": "a whole number of bytes, at least 16777216, or not set",
    "drain_seconds": "a number of seconds from 0 to 3600",
    "stop_work_seconds": "a number of seconds above 0, at most 3600",
    "stop_callers_seconds": "a number of seconds above 0, at most 3600",
    "stop_models_seconds": "a number of seconds above 0, at most 3600",
    "stop_database_seconds": "a number of seconds above 0, at most 3600",
    "log_level": "one of debug, info, warning, error",
}
BAD = ("never", "1GB", "-1", "0.5x", "1e400", "none", "nan")
PYTHON = re.compile(r"`|\b(null|enum|int|str|float|bool|None|NoneType|Literal|OnRestart|expected)\b", re.IGNORECASE)


def refused(env: dict[str, str], given: dict[str, Any] | None = None, *, strict: bool = True) -> str:
    """What is said of settings that cannot be used."""
    with pytest.raises(RefusedToStart) as refusal:
        load(given or {}, {f"{PREFIX}{name}": value for name, value in env.items()}, strict=strict)
    return refusal.value.message


def test_every_setting_but_texts_is_looked_at() -> None:
    """A new one has its words here, in its order."""
    texts = {field.name for field in FIELDS if field.type in (str, str | None)}
    assert [field.name for field in FIELDS if field.name not in texts] == list(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_a_value_that_does_not_fit_is_told_with_what_does(name: str) -> None:
    """In words, not in types, whatever the value is."""
    for value in BAD:
        line = refused({name.upper(): value})
        variable = f"{PREFIX}{name.upper()}"
        assert line == f"The settings cannot be used: {variable} is {value!r}: must be {WANTED[name]}."
        assert PYTHON.search(line.replace(repr(value), "")) is None


@pytest.mark.parametrize("name", WANTED)
def test_the_values_that_the_words_name_are_taken(name: str) -> None:
    """Both ends of a range that has two, each word, and what stands there if nothing is set."""
    words, kept = WANTED[name], getattr(Settings(), name)
    named = re.findall(r"\d+", words.replace("above 0", "")) or re.findall(r"\w+", words.removeprefix("one of "))
    for each in [value for value in named if value != "or"] + ["forever"] * ("forever" in words):
        taken = getattr(load({}, {f"{PREFIX}{name.upper()}": each}, strict=True), name)
        assert str(taken).lower() in (each, f"{each}.0")
        assert isinstance(taken, type(kept)) or kept is None or isinstance(kept, enum.Enum) or each == "forever"


def test_an_option_is_named_as_an_option() -> None:
    """It is refused by every command: whoever typed it is there."""
    for strict in (True, False):
        line = refused({}, {"port": 70000}, strict=strict)
        assert line == "The settings cannot be used: --port is 70000: must be a whole number from 0 to 65535."


def test_a_misspelt_setting_is_told_with_the_one_that_was_meant() -> None:
    """Where one is near; all problems stand in one line."""
    line = refused({"RETENTION": "9", "LOGLEVEL": "info", "ZZZZ": "1", "SLOTS": "x"})
    assert line == (
        "The settings cannot be used: PERDURE_LOGLEVEL is no setting (did you mean PERDURE_LOG_LEVEL?); "
        "PERDURE_RETENTION is no setting (did you mean PERDURE_RETENTION_DAYS?); PERDURE_ZZZZ is no setting; "
        "PERDURE_SLOTS is 'x': must be a whole number from 1 to 32."
    )


def test_a_command_that_needs_only_the_folder_goes_on_and_tells() -> None:
    """What does not fit has its default there."""
    env = {"PERDURE_RETENTION": "9", "PERDURE_PORT": "http", "PERDURE_SLOTS": "2"}
    found = load({}, env)
    assert (found.port, found.slots) == (Settings().port, 2)
    assert passed_over({}, env) == [
        "PERDURE_RETENTION is no setting (did you mean PERDURE_RETENTION_DAYS?); it has no effect here.",
        "PERDURE_PORT is 'http': must be a whole number from 0 to 65535; it has no effect here.",
    ]
    assert passed_over({}, {"PERDURE_SLOTS": "2", "HOME": "/"}) == []


@pytest.mark.parametrize("stray", ["DAT", "DATA_DIR", "DATA_FOLDER", "data"])
def test_a_folder_that_is_misspelt_is_refused_by_all(stray: str) -> None:
    """The command would take another folder; not so where that is named."""
    assert f"PERDURE_{stray} is no setting (did you mean PERDURE_DATA?)" in refused({stray: "/srv"}, strict=False)
    for given, env in (({"data": "/x"}, {}), ({}, {"PERDURE_DATA": "/x"})):
        surroundings = {f"PERDURE_{stray}": "/srv", **env}
        assert load(given, surroundings).data == "/x"
        assert len(passed_over(given, surroundings)) == 1


@pytest.mark.parametrize("name", ["data", "model"])
def test_a_path_is_whole(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`~` is the user's home, from the option and from the variable; what is relative is so to the current folder."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.chdir(tmp_path)
    for told, meant in (("~/x y", "/home/somebody/x y"), ("x/~", f"{tmp_path}/x/~"), ("/x/../y", "/x/../y")):
        assert getattr(load({name: told}, {}), name) == meant
        assert getattr(load({}, {f"{PREFIX}{name.upper()}": told}), name) == meant


@pytest.mark.parametrize("strict", [True, False])
def test_a_home_that_is_not_known_is_refused(strict: bool) -> None:
    """No folder of that name is made."""
    line = refused({"DATA": "~nobody-of-that-name/x"}, strict=strict)
    assert line.startswith("The settings cannot be used: PERDURE_DATA is '~nobody-of-that-name/x': no such user")


def test_a_relative_path_in_a_folder_that_is_gone_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a line."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "--data is 'x': the current folder is gone" in refused({}, {"data": "x"})


def test_the_user_s_folder_stands_where_nothing_is_named() -> None:
    """An empty variable names nothing."""
    assert load({}, {"PERDURE_DATA": "", "PERDURE_PORT": ""}, strict=True) == Settings()


def test_several_models_are_named_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a search path; each is a path of its own."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.chdir(tmp_path)
    chosen = load({}, {"PERDURE_MODEL": "~/a.gguf:b.gguf::/c.gguf:"}, strict=True)
    assert chosen.model_files == [Path("/home/somebody/a.gguf"), tmp_path / "b.gguf", Path("/c.gguf")]
    assert Settings().model_files == []


@pytest.mark.parametrize(
    ("idle", "models", "seconds"),
    [(None, "a", None), (None, None, None), (None, "a:b", 300), (7, "a", 7), (7, "a:b", 7), ("forever", "a:b", None)],
)
def test_a_model_alone_stays_loaded_unless_it_is_told_otherwise(
    idle: object, models: str | None, seconds: float | None
) -> None:
    """Several make room after a while by themselves."""
    assert load({"model_idle_seconds": idle, "model": models}, {}).idle_seconds == seconds
