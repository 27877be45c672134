"""One task whose process always dies, and others beside it, with real processes."""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.domain.lifecycle import Status
from perdure.domain.limits import CRASHES_MAX
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.engine.engine import Engine
from perdure.ports.runtime import Generation, Job
from perdure.runtime.llamacpp.host import ModelFile
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.manual_clock import ManualClock
from perdure.testing.store_steps import add_client
from tests.integration.runtime.tools import run
from tests.unit.engine.stage import CountedNames, request, user

GOOD = ("Tell me a story.", "Sing a song.", "Count to ten.", "Say nothing.")
BAD_SEED = 666


class Doomed(LlamaRuntime):
    """Its process dies, as by the memory killer, of the text of one seed: before it has drawn a token of it."""

    async def generate(self, job: Job) -> Generation:
        """See the port."""
        process = self._hosts[job.model].engine.keeper.pid
        if job.sampling.seed != BAD_SEED or process is None:
            return await super().generate(job)
        os.kill(process, signal.SIGSTOP)
        generation = await super().generate(job)
        os.kill(process, signal.SIGKILL)
        return generation


async def responses(folder: Path, model: Path, seeds: dict[str, int]) -> dict[str, dict[str, Any]]:
    """What becomes of the prompts, each with its seed, in a service of their own."""
    store = await SqliteStore.open(folder)
    runtime = Doomed([ModelFile("m", model)], slots=4, window=512)
    runtime.start()
    engine = Engine(
        store, runtime, ManualClock(), CountedNames(), lambda what, error: None, boot="boot-1", queue_max=100,
        crashes_max=CRASHES_MAX, retention_seconds=None,
    )  # fmt: skip
    await engine.start()
    try:
        owner = Principal(await add_client(store), "owner", ALL_SCOPES)
        made = {
            prompt: await engine.submit(owner, request(model="m", seed=seed, max_output_tokens=200), [user(prompt)])
            for prompt, seed in seeds.items()
        }
        for accepted in made.values():
            async with engine.follow(owner, accepted.ident, -1) as events:
                assert [event async for event in events]
        return {
            prompt: msgspec.json.decode(await engine.response(owner, accepted.ident))
            for prompt, accepted in made.items()
        }
    finally:
        engine.drain()
        await engine.finish()
        await runtime.close()
        await store.close()


@pytest.mark.proves("C-10", "F-11")
def test_whoever_shared_a_batch_with_a_bad_task_completes_as_undisturbed(tiny_model: Path, tmp_path: Path) -> None:
    """The bad one fails after its three crashes, whoever was beside it; the others have the text of a service in
    which there was none."""
    good = {prompt: seed for seed, prompt in enumerate(GOOD)}

    async def test() -> None:
        calm = await responses(tmp_path / "calm.db", tiny_model, good)
        mixed = {GOOD[0]: 0, GOOD[1]: 1, "Die.": BAD_SEED, GOOD[2]: 2, GOOD[3]: 3}
        found = await responses(tmp_path / "mixed.db", tiny_model, mixed)
        failed = found.pop("Die.")
        assert failed["status"] == Status.FAILED
        assert failed["error"]["code"] == "attempts_exhausted"
        assert failed["error"]["detail"] == "runtime_crashed"
        for prompt, response in calm.items():
            assert response["status"] in (Status.COMPLETED, Status.INCOMPLETE)
            assert response["usage"]["output_tokens"] > 0
            for part in ("status", "output", "usage", "perdure"):
                assert without_ids(found[prompt][part]) == without_ids(response[part])

    run(test())


def without_ids(part: Any) -> Any:
    """Of output, what does not depend on the order of the creates."""
    return [{**item, "id": None} for item in part] if isinstance(part, list) else part
