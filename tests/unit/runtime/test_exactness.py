"""`exactness`: when a resumed text is promised to be the same."""

import json

import msgspec
import pytest

from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.exactness import fingerprint, is_exact

BUNDLED = wire.TokenizerReady(
    architecture="llama",
    file_type=3,
    weight_types=("f32", "q4_1", "q8_0"),
    context_train=8192,
    kv_bytes_per_token=23_040,
    token_bytes_max=64,
    library_version="1",
    system_info="CPU : AVX2 = 1",
)


def test_measured_weights_are_exact() -> None:
    """The bundled model, drawn by one thread."""
    assert is_exact(BUNDLED, threads=1)


@pytest.mark.parametrize(
    "other",
    [{"architecture": "gemma3"}, {"file_type": None}, {"file_type": 1}, {"weight_types": ("f32", "q4_0", "q6_K")}],
)
def test_what_was_not_measured_is_not_exact(other: dict[str, object]) -> None:
    """Another design, another type, or one tensor of another type among good ones."""
    assert not is_exact(msgspec.structs.replace(BUNDLED, **other), threads=1)


def test_two_threads_are_not_exact() -> None:
    """They split long texts between them."""
    assert not is_exact(BUNDLED, threads=2)


def test_the_fingerprint_is_canonical_and_tells_every_difference() -> None:
    """The same for the same, one line of sorted JSON, another one for each thing that decides the bits."""
    made = fingerprint(BUNDLED, model_digest="a", library_digest="b", threads=1)
    assert made == json.dumps(json.loads(made), sort_keys=True, separators=(",", ":"))
    others = {
        fingerprint(BUNDLED, model_digest="x", library_digest="b", threads=1),
        fingerprint(BUNDLED, model_digest="a", library_digest="x", threads=1),
        fingerprint(BUNDLED, model_digest="a", library_digest="b", threads=2),
        fingerprint(
            msgspec.structs.replace(BUNDLED, system_info="CPU : AVX512 = 1"),
            model_digest="a",
            library_digest="b",
            threads=1,
        ),
    }
    assert made not in others
    assert len(others) == 4
