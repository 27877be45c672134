"""The power goes while the log is being looked at: the second connection is as careful as the writer's."""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration.upkept import upkept

from perdure.storage.sqlite import connection
from perdure.storage.sqlite.connection import Pragma
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Operation, RecordingDisk, image_after_cut, registered
from perdure.testing.store_steps import found

CUTS = 60


@dataclass
class History:
    """What was done to the disk, from `begin` on by looks and writes in turn, and how far the text had been
    acknowledged at which operation."""

    log: list[Operation] = field(default_factory=list[Operation])
    begin: int = 0
    acknowledged: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def promised(self, cut: int) -> int:
        """The number of the next event that was known before the cut."""
        return max((number for at, number in self.acknowledged if at <= cut), default=0)


async def lived(folder: Path) -> History:
    """Writes, looks that move them, and writes over the log that was moved."""
    history, disk = History(), RecordingDisk("looks")
    with registered(disk):
        async with upkept(folder, "looks") as it:
            await it.write(times=5)
            history.begin = len(disk.log)
            for _ in range(4):
                await it.minute()
                for _ in range(3):
                    await it.write()
                    number = (await found(it.store, "writes")).next_seq
                    history.acknowledged.append((len(disk.log), number))
            history.log = list(disk.log)
    return history


async def kept(path: Path) -> int:
    """The number of the next event in what a cut has left."""
    store = await SqliteStore.open(path)
    number = (await found(store, "writes")).next_seq
    await store.close()
    return number


def losses(tmp_path: Path) -> int:
    """How many of the cuts have lost something, or left a file that cannot be used."""
    (tmp_path / "lived").mkdir()
    history, lost = asyncio.run(lived(tmp_path / "lived")), 0
    for number in range(CUTS):
        chance = random.Random(number)
        cut = chance.randrange(history.begin, len(history.log) + 1)
        folder = tmp_path / f"cut{number}"
        folder.mkdir()
        for name, content in image_after_cut(history.log, cut, chance).items():
            (folder / name).write_bytes(content)
        try:
            lost += asyncio.run(kept(folder / "perdure.db")) < history.promised(cut)
        except Exception:  # noqa: BLE001 -- however it cannot be used
            lost += 1
    return lost


@pytest.mark.proves("W1", "P3")
def test_a_power_cut_in_a_look_loses_nothing(tmp_path: Path) -> None:
    """Whatever was acknowledged is there, whichever writes had reached the disk."""
    assert losses(tmp_path) == 0


def test_this_test_would_notice_a_careless_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its syncs the same cuts lose something."""
    careless: tuple[Pragma, ...] = (("synchronous", "off", 0),)
    monkeypatch.setattr(connection, "CHECKPOINTER", careless)
    assert losses(tmp_path) > 0
