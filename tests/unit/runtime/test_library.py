"""`library`: the declarations over the C functions."""

import _ctypes
import ctypes
import sys
from pathlib import Path

import pytest

from perdure.runtime.llamacpp import library as lib


def without(structure: type[ctypes.Structure], *names: str) -> type[ctypes.Structure]:
    """The same structure as an older or newer library might have it."""
    fields = [field for field in structure._fields_ if field[0] not in names]
    return type(structure.__name__, (ctypes.Structure,), {"_fields_": fields})


def test_the_pinned_library_has_the_declared_layout(library: ctypes.CDLL) -> None:
    """Opening it has checked that; the spare room is wide enough to check a longer one."""
    lib.check_layout(library.llama_context_default_params(), lib.CONTEXT_DEFAULTS)
    assert library.llama_version()


@pytest.mark.parametrize("name", ["n_ubatch", "n_rs_seq", "ctx_type", "unnamed", "offload_kqv"])
def test_a_context_layout_that_lacks_a_field_is_refused(library: ctypes.CDLL, name: str) -> None:
    """Defaults come back in the wrong places, and the message says where and what to do."""
    function = library["llama_context_default_params"]  # a fresh pointer; the shared declaration stays
    function.restype = without(lib.ContextParams, name)
    expected = {key: value for key, value in lib.CONTEXT_DEFAULTS.items() if key != name}
    with pytest.raises(lib.LibraryUnusable, match=r"layout .* pinned xllamacpp"):
        lib.check_layout(function(), expected)


def test_a_model_layout_that_lacks_a_field_is_refused(library: ctypes.CDLL) -> None:
    """The same for the parameters of a model."""
    function = library["llama_model_default_params"]
    function.restype = without(lib.ModelParams, "load_mode", "lazy_mode")
    with pytest.raises(lib.LibraryUnusable, match="ModelParams"):
        lib.check_layout(function(), lib.MODEL_DEFAULTS)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    """With the name of the file."""
    wrong = tmp_path / "libllama.so"
    wrong.write_text("no library")
    with pytest.raises(lib.LibraryUnusable, match=r"libllama\.so is not a libllama"):
        lib.open_library(wrong)


def test_a_library_without_the_functions_is_refused() -> None:
    """Any other shared library will do."""
    with pytest.raises(lib.LibraryUnusable, match="llama_model_default_params"):
        lib.open_library(Path(_ctypes.__file__))


def test_finding_the_library_does_not_import_its_package() -> None:
    """Its extension module would start llama.cpp in this process."""
    assert lib.find_library().suffix == ".so"
    assert "xllamacpp" not in sys.modules
