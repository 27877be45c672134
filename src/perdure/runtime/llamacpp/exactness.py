"""What a resumed text must share with the undisturbed one to be bit for bit the same, and the settings that give it.

Nothing here touches the library: this is what the parent knows.
"""

import json
import platform
from importlib.metadata import PackageNotFoundError, version

from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.plan import ROWS_MAX

SAMPLER_VERSION = 2
"""To be raised with every change to `sampling`, `masks` or `answer` that can change what is drawn or shown."""

# Measured to give the same bits for one row or many, beside any neighbours. General file types 2, 3 and 7 are
# "mostly" Q4_0, Q4_1 and Q8_0; the types of all tensors are looked at as well, since "mostly" may hide others.
_ARCHITECTURES = frozenset({"llama"})
_FILE_TYPES = frozenset({2, 3, 7})
_WEIGHT_TYPES = frozenset({"f32", "q4_0", "q4_1", "q8_0"})
_THREADS = 1


def is_exact(facts: wire.TokenizerReady, threads: int) -> bool:
    """Whether this model, drawn with so many threads, is known to give the same bits however it is batched."""
    return (
        facts.architecture in _ARCHITECTURES
        and facts.file_type in _FILE_TYPES
        and _WEIGHT_TYPES.issuperset(facts.weight_types)
        and threads == _THREADS
    )


def fingerprint(facts: wire.TokenizerReady, *, model_digest: str, library_digest: str, threads: int) -> str:
    """Everything that decides the bits, as canonical JSON. The number of slots does not, nor does the window."""
    known = {
        "model": model_digest,
        "library": {
            "llama": facts.library_version,
            "sha256": library_digest,
            "xllamacpp": _version("xllamacpp"),
        },
        "processor": {"machine": platform.machine(), "features": facts.system_info},
        "numpy": _version("numpy"),
        "llguidance": _version("llguidance"),
        "sampler": SAMPLER_VERSION,
        "threads": threads,
        "ubatch": ROWS_MAX,
        "flash_attention": True,
        "kv_type": "f16",
        "kv_unified": False,
        "mode": "batched",
    }
    return json.dumps(known, sort_keys=True, separators=(",", ":"))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
