"""A foreground request that finds all slots taken, at a real process."""

from pathlib import Path

import pytest

from tests.system.caller import Caller
from tests.system.server import Server, check_log, deltas_of, freeze, text_of, thaw
from tests.system.test_foreground import ends, known, newest

LONG = {"max_output_tokens": 1000, "temperature": 1.0}


@pytest.mark.proves("F-18")
def test_a_background_text_gives_way_and_is_as_undisturbed(tmp_path: Path, tiny_model: Path) -> None:
    """The younger of two; its stream stays open through it. The same request alone gives the same bytes."""
    with Server(tmp_path / "data", tiny_model, slots=2).start() as server:
        freeze(server.engine_child())  # or the older one might end before the younger is held
        old = server.create("One.", seed=1, **{**LONG, "max_output_tokens": 1900})["id"]
        young = server.create("Two.", seed=2, **LONG)["id"]
        for each in (old, young):
            server.reaches(each, "running")
        thaw(server.engine_child())
        with server.stream(young) as frames:
            child = server.holds(young)
            before = known(server)
            caller = Caller(server, stream=False)
            asked = newest(server, before)
            assert asked["status"] == "queued"
            thaw(child)
            assert ends(server, asked) in ("completed", "incomplete")
            caller.hangs_up()
            events = check_log(list(frames))
        notes = [step["note"] for step in server.task(young)["history"]]
        assert [note for note in notes if note.startswith("gave way to a foreground response")]
        assert not [step for step in server.task(old)["history"] if step["note"].startswith("gave way")]
        disturbed = server.ended(young)
        assert disturbed["perdure"]["resume"] == "exact"
        alone = server.ended(server.create("Two.", seed=2, **LONG)["id"])
        assert deltas_of(events) == text_of(disturbed) == text_of(alone)
        assert disturbed["usage"] == alone["usage"]
        assert server.terminate() == 0
