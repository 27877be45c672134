"""Trouble of the disk as a state: told once, left by itself, and of damage never."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.engine.stage import scenario

from perdure.domain.errors import StorageDamaged, StorageFailed, StorageFull, Unavailable
from perdure.storage.sqlite import trouble
from perdure.storage.sqlite.trouble import CALM_SECONDS, RETRY_SECONDS, ROOM_MIN_BYTES, UNREAD_SECONDS, Trouble

FILE = Path("/data/perdure.db")
MADE = None
FULL, FAILED, DAMAGED = StorageFull("full"), StorageFailed("failed"), StorageDamaged("damaged")


class Disk:
    """A state under test, and how much the store itself has tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = ROOM_MIN_BYTES
        self.tries = 0
        self.tried = asyncio.Event()
        self.state = Trouble(self._try)
        self.state.watch(FILE)
        monkeypatch.setattr(trouble.shutil, "disk_usage", self._usage)

    def _usage(self, folder: Path) -> SimpleNamespace:
        assert folder == FILE.parent
        return SimpleNamespace(free=self.free)

    def _try(self) -> None:
        self.tries += 1
        self.tried.set()

    async def calm(self) -> None:
        """So much later that a write which goes well ends the state."""
        await asyncio.sleep(CALM_SECONDS + 0.2)  # the loop's time

    def delivered(self, outcomes: Sequence[Exception | None]) -> None:
        """A batch was made, or parts of it, or nothing."""
        refusals = [each for each in outcomes if isinstance(each, StorageFull | StorageFailed)]
        self.state.delivered(refusals, made=MADE in outcomes)

    def close(self) -> None:
        self.state.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was told: level and first word."""
    return [(record.levelname, record.getMessage().split()[0].rstrip(":")) for record in caplog.records]


@pytest.mark.parametrize("error", [FULL, FAILED, DAMAGED], ids=lambda error: error.error_code)
@scenario
async def test_the_first_refusal_is_told_and_the_others_are_not(
    error: Unavailable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the file, SQLite's own words, what happens meanwhile, and the remedy."""
    disk = Disk(monkeypatch)
    error.__cause__ = OSError("its own words")
    for _ in range(3):
        disk.delivered([error, MADE, error])
    disk.close()
    assert disk.state.code == error.error_code
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    for part in (error.error_code, str(FILE), "its own words", "held", "nothing is deleted"):
        assert part in record.getMessage()
    assert disk.state.reason is not None
    assert str(FILE.parent) not in disk.state.reason


@pytest.mark.parametrize("error", [FULL, FAILED], ids=lambda error: error.error_code)
@scenario
async def test_it_ends_with_a_write_after_a_while_without_a_refusal(
    error: Unavailable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with one that fits between two refusals; and the end is one line."""
    disk = Disk(monkeypatch)
    disk.delivered([error])
    disk.delivered([MADE])
    assert disk.state.code == error.error_code
    await disk.calm()
    disk.delivered([MADE, error])
    assert disk.state.code == error.error_code
    await disk.calm()
    disk.delivered([ValueError("a step that was stale, which tells nothing of the disk")])
    assert disk.state.code == error.error_code
    disk.delivered([MADE, MADE])
    disk.delivered([MADE])
    assert (disk.state.code, disk.state.reason) == (None, None)
    assert lines(caplog) == [("ERROR", error.error_code), ("WARNING", str(FILE))]
    assert "2 were refused" in caplog.records[-1].getMessage()


@scenario
async def test_a_full_disk_is_full_until_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small write fits where a large one would not."""
    disk = Disk(monkeypatch)
    disk.free = ROOM_MIN_BYTES - 1
    disk.delivered([FULL])
    await disk.calm()
    disk.delivered([MADE])
    assert disk.state.code == FULL.error_code
    disk.free = ROOM_MIN_BYTES
    disk.delivered([MADE])
    assert disk.state.code is None


@scenario
async def test_the_store_tries_by_itself_while_nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """About once a second, for as long as it is refused."""
    disk = Disk(monkeypatch)
    disk.delivered([FAILED])
    for number in range(1, 4):
        await disk.tried.wait()
        disk.tried.clear()
        assert disk.tries == number
        disk.delivered([FAILED])
    await disk.tried.wait()
    await disk.calm()
    disk.delivered([MADE])
    tries = disk.tries
    await asyncio.sleep(3 * RETRY_SECONDS)  # the loop's time
    assert (disk.state.code, disk.tries) == (None, tries)


@scenario
async def test_others_who_write_make_its_own_write_needless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of theirs tells as much."""
    disk = Disk(monkeypatch)
    for _ in range(8):
        disk.delivered([FULL])
        await asyncio.sleep(RETRY_SECONDS / 4)  # the loop's time
    disk.close()
    assert disk.tries == 0


@scenario
async def test_a_closed_store_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even after what was handed over before has been refused."""
    disk = Disk(monkeypatch)
    disk.delivered([FULL])
    disk.close()
    disk.delivered([FULL])
    await asyncio.sleep(3 * RETRY_SECONDS)  # the loop's time
    assert disk.tries == 0


@scenario
async def test_causes_that_take_turns_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk beside a foreign lock: the code is always that of the last refusal. Damage is told all the same."""
    disk = Disk(monkeypatch)
    for error in (FULL, FAILED) * 5:
        disk.delivered([error])
        assert disk.state.code == error.error_code
    assert lines(caplog) == [("ERROR", FULL.error_code)]
    await disk.calm()
    disk.delivered([MADE])
    assert disk.state.code is None
    assert "10 were refused" in caplog.records[-1].getMessage()
    for error in (FAILED, FULL, DAMAGED):
        disk.delivered([error])
    assert lines(caplog)[2:] == [("ERROR", FAILED.error_code), ("ERROR", DAMAGED.error_code)]


@scenario
async def test_a_read_that_fails_changes_no_state(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, once in a while, however many ask; nothing is tried. Damage that a read meets is damage."""
    disk = Disk(monkeypatch)
    for number in (1, 2):
        for _ in range(50):
            disk.state.unread(FAILED)
        assert [level for level, _ in lines(caplog)] == ["ERROR"] * number
        await asyncio.sleep(UNREAD_SECONDS)  # the loop's time
    assert (disk.state.code, disk.state.reason, disk.tries) == (None, None, 0)
    disk.state.unread(DAMAGED)
    assert disk.state.is_damaged


@scenario
async def test_damage_stays(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever comes after it; nothing is tried, and who asks is refused."""
    disk = Disk(monkeypatch)
    disk.state.check()
    disk.state.met(FAILED)
    disk.state.check()
    disk.state.met(DAMAGED)
    await disk.calm()
    for outcome in ([MADE], [FULL], [FAILED], [DAMAGED]):
        disk.delivered(outcome)
    await asyncio.sleep(3 * RETRY_SECONDS)  # the loop's time
    assert (disk.state.code, disk.tries) == (DAMAGED.error_code, 0)
    with pytest.raises(StorageDamaged):
        disk.state.check()
    assert lines(caplog) == [("ERROR", FAILED.error_code), ("ERROR", DAMAGED.error_code)]
