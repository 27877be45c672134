"""The composition root where something fails half way."""

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from perdure import bootstrap
from perdure.ambient.clock import SystemClock
from perdure.ambient.log import Held
from perdure.domain.errors import StorageDamaged
from perdure.settings import load


def fail(*_: object, **__: object) -> NoReturn:
    """A fault of the program."""
    raise RuntimeError("a fault of the program")


@pytest.mark.parametrize("place", ["__init__", "start"])
def test_a_store_is_closed_when_the_runtime_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its last connection has put everything into the file: nothing lies beside it."""
    monkeypatch.setattr(bootstrap.LlamaRuntime, place, fail)
    settings = load({"data": str(tmp_path)}, environ={})

    async def play() -> None:
        opened = vars(bootstrap)["_opened"](settings, [], SystemClock(), bootstrap.Stop(), Held())
        with pytest.raises(RuntimeError, match="a fault of the program"):
            async with opened:
                pass

    asyncio.run(play())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["perdure.db"]


def test_damage_without_a_cause_is_told_without_one(tmp_path: Path) -> None:
    """A write that is refused because of damage found before has no words of SQLite's."""
    with pytest.raises(StorageDamaged) as caught, vars(bootstrap)["_whole"](tmp_path / "perdure.db"):
        raise StorageDamaged("The database is damaged.")
    assert "None" not in caught.value.message
    assert str(tmp_path / "perdure.db") in caught.value.message
