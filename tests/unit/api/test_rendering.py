"""How answers are put together: a sample, and the number that stands for it in every tag.

What has ended keeps its tag over restarts and versions. So whoever changes a byte here raises `RENDERING`, or clients
are told for ever that the old bytes still hold.
"""

import hashlib
from pathlib import Path

import pytest
from tests.unit.engine.stage import scenario

from perdure.api import conditional
from perdure.api.conditional import RENDERING
from perdure.testing.scripted_runtime import MODEL

from .test_conditional_kept import SETTLED, caller, serving

SAMPLED = (*SETTLED, f"/v1/models/{MODEL}")

SAMPLES: dict[int, tuple[str, ...]] = {
    1: (
        "b1f9d62aa60d5ef1820d257aae76722fad70803a51426fad307787c5854fcc2c",
        "0416e4bf5dbf079abafd46d5fc9b59062a3c9de2e49a17f008c66bcac086263f",
        "fd89f449569826ccf14f61329a8fac2297f5fb26b470ef908a1d478b095821aa",
    ),
    2: (
        "59176f54ca33fd62e2166c1c537ac4e238c8315608f3468f74aee343e0dc77b1",
        "0416e4bf5dbf079abafd46d5fc9b59062a3c9de2e49a17f008c66bcac086263f",
        "b90cbef2b61bfe1523aca66a2b23bfc9cb463334f2247ea01d9ea12f6dda42ec",
    ),
    3: (
        "59176f54ca33fd62e2166c1c537ac4e238c8315608f3468f74aee343e0dc77b1",
        "0416e4bf5dbf079abafd46d5fc9b59062a3c9de2e49a17f008c66bcac086263f",
        "b90cbef2b61bfe1523aca66a2b23bfc9cb463334f2247ea01d9ea12f6dda42ec",
        "ac7b6df5aa54db787c36cca2f822daae890333be20c541ccebbf7ae5d13e0aeb",
    ),
}
"""By number: digests of a response, of its task, of its events, and from 3 on of a model. A number that was in use
keeps its line."""


@scenario
async def test_whoever_changes_the_rendering_raises_its_number(tmp_path: Path) -> None:
    """A text of one token, so that nothing depends on how tokens are gathered."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        ident = await stage.submit(metadata={"key": "välue"}, max_output_tokens=1)
        await stage.ended(ident)
        bodies = [(await reader.read(page.format(ident))).content for page in SAMPLED]
    found = tuple(hashlib.sha256(body).hexdigest() for body in bodies)
    assert found == SAMPLES[RENDERING], bodies


@scenario
async def test_a_tag_of_another_rendering_matches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though version and rows are the same."""
    async with serving(tmp_path) as stage:
        ident = await stage.submit()
        await stage.ended(ident)
        paths = [page.format(ident) for page in SETTLED]
        async with caller(stage) as reader:
            tags = [(await reader.read(path)).headers["etag"] for path in paths]
            assert [
                (await reader.read(path, if_none_match=tag)).status_code
                for path, tag in zip(paths, tags, strict=True)
            ] == [304] * 3
        monkeypatch.setattr(conditional, "RENDERING", RENDERING + 1)
        async with caller(stage) as reader:
            for path, tag in zip(paths, tags, strict=True):
                answer = await reader.read(path, if_none_match=tag)
                assert (answer.status_code, answer.headers["etag"] == tag) == (200, False)
