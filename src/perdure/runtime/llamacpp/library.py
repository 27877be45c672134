"""The C functions of llama.cpp, called through ctypes. Only child processes import this module's callers.

The functions come from the extension module of the `xllamacpp` wheel, which exports them, or from another libllama
that a setting names. Nothing in a compiled library says how its structures are laid out, so `open_library` asks for
the default parameters and compares what comes back with what the declared layout must give: a library with another
layout is refused before it can read a wrong field.

`CDLL` lets go of the interpreter lock during every call.
"""

import ctypes as c
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

_INT, _UINT, _FLOAT, _BOOL, _POINTER, _SIZE = c.c_int32, c.c_uint32, c.c_float, c.c_bool, c.c_void_p, c.c_size_t

# Room behind the declared fields: a library whose structure is longer fills these bytes instead of foreign memory,
# so that the layout check lives to see it.
_SPARE = ("spare", c.c_byte * 256)

LOG_LEVEL_ERROR = 4
FLASH_ATTENTION_ON = 1
KV_TYPE_F16 = 1
TOKEN_UNKNOWN = 1 << 0
TOKEN_CONTROL = 1 << 3


class LibraryUnusable(Exception):
    """There is no libllama, or it is not the one that these declarations describe."""


class ModelParams(c.Structure):
    """`llama_model_params`."""

    _fields_ = [
        ("devices", _POINTER),
        ("tensor_buft_overrides", _POINTER),
        ("n_gpu_layers", _INT),
        ("split_mode", _INT),
        ("load_mode", _INT),
        ("lazy_mode", _INT),
        ("main_gpu", _INT),
        ("tensor_split", _POINTER),
        ("progress_callback", _POINTER),
        ("progress_callback_user_data", _POINTER),
        ("kv_overrides", _POINTER),
        ("vocab_only", _BOOL),
        ("check_tensors", _BOOL),
        ("use_extra_bufts", _BOOL),
        ("no_host", _BOOL),
        ("no_alloc", _BOOL),
        ("load_mtp", _BOOL),
        _SPARE,
    ]


class ContextParams(c.Structure):
    """`llama_context_params`."""

    _fields_ = [
        ("n_ctx", _UINT),
        ("n_batch", _UINT),
        ("n_ubatch", _UINT),
        ("n_seq_max", _UINT),
        ("n_rs_seq", _UINT),
        ("n_outputs_max", _UINT),
        ("n_outputs_max_per_seq", _UINT),
        ("n_threads", _INT),
        ("n_threads_batch", _INT),
        ("ctx_type", _INT),
        ("rope_scaling_type", _INT),
        ("pooling_type", _INT),
        ("attention_type", _INT),
        ("flash_attn_type", _INT),
        ("rope_freq_base", _FLOAT),
        ("rope_freq_scale", _FLOAT),
        ("yarn_ext_factor", _FLOAT),
        ("yarn_attn_factor", _FLOAT),
        ("yarn_beta_fast", _FLOAT),
        ("yarn_beta_slow", _FLOAT),
        ("yarn_orig_ctx", _UINT),
        ("defrag_thold", _FLOAT),
        ("cb_eval", _POINTER),
        ("cb_eval_user_data", _POINTER),
        ("type_k", _INT),
        ("type_v", _INT),
        ("abort_callback", _POINTER),
        ("abort_callback_data", _POINTER),
        ("unnamed", c.c_uint64),  # found by the layout check; no public header names it, and it is never set
        ("embeddings", _BOOL),
        ("offload_kqv", _BOOL),
        ("no_perf", _BOOL),
        ("op_offload", _BOOL),
        ("swa_full", _BOOL),
        ("kv_unified", _BOOL),
        ("samplers", _POINTER),
        ("n_samplers", _SIZE),
        ("ctx_other", _POINTER),
        _SPARE,
    ]


class LlamaBatch(c.Structure):
    """`llama_batch`."""

    _fields_ = [
        ("n_tokens", _INT),
        ("token", c.POINTER(_INT)),
        ("embd", _POINTER),
        ("pos", c.POINTER(_INT)),
        ("n_seq_id", c.POINTER(_INT)),
        ("seq_id", c.POINTER(c.POINTER(_INT))),
        ("logits", c.POINTER(c.c_int8)),
    ]


class GgufParams(c.Structure):
    """`gguf_init_params`."""

    _fields_ = [("no_alloc", _BOOL), ("ctx", _POINTER)]


LOG_CALLBACK = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)

# Name: result, arguments.
_FUNCTIONS: Mapping[str, tuple[object, ...]] = {
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_backend_init": (None,),
    "llama_log_set": (None, LOG_CALLBACK, _POINTER),
    "llama_version": (c.c_char_p,),
    "llama_print_system_info": (c.c_char_p,),
    "llama_model_load_from_file": (_POINTER, c.c_char_p, ModelParams),
    "llama_model_free": (None, _POINTER),
    "llama_model_meta_val_str": (_INT, _POINTER, c.c_char_p, c.c_char_p, _SIZE),
    "llama_model_chat_template": (c.c_char_p, _POINTER, c.c_char_p),
    "llama_model_get_vocab": (_POINTER, _POINTER),
    "llama_vocab_n_tokens": (_INT, _POINTER),
    "llama_vocab_get_attr": (_INT, _POINTER, _INT),
    "llama_vocab_get_text": (c.c_char_p, _POINTER, _INT),
    "llama_vocab_is_eog": (_BOOL, _POINTER, _INT),
    "llama_vocab_get_add_bos": (_BOOL, _POINTER),
    "llama_vocab_bos": (_INT, _POINTER),
    "llama_vocab_eos": (_INT, _POINTER),
    "llama_tokenize": (_INT, _POINTER, c.c_char_p, _INT, c.POINTER(_INT), _INT, _BOOL, _BOOL),
    "llama_token_to_piece": (_INT, _POINTER, _INT, c.c_char_p, _INT, _INT, _BOOL),
    "llama_init_from_model": (_POINTER, _POINTER, ContextParams),
    "llama_free": (None, _POINTER),
    "llama_n_ctx_seq": (_UINT, _POINTER),
    "llama_get_memory": (_POINTER, _POINTER),
    "llama_memory_seq_rm": (_BOOL, _POINTER, _INT, _INT, _INT),
    "llama_memory_seq_cp": (None, _POINTER, _INT, _INT, _INT, _INT),
    "llama_memory_seq_pos_min": (_INT, _POINTER, _INT),
    "llama_batch_init": (LlamaBatch, _INT, _INT, _INT),
    "llama_batch_free": (None, LlamaBatch),
    "llama_decode": (_INT, _POINTER, LlamaBatch),
    "llama_get_logits_ith": (c.POINTER(_FLOAT), _POINTER, _INT),
    "gguf_init_from_file": (_POINTER, c.c_char_p, GgufParams),
    "gguf_free": (None, _POINTER),
    "gguf_get_n_tensors": (c.c_int64, _POINTER),
    "gguf_get_tensor_type": (c.c_int, _POINTER, c.c_int64),
    "ggml_type_name": (c.c_char_p, c.c_int),
}

MODEL_DEFAULTS: Mapping[str, object] = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
}
CONTEXT_DEFAULTS: Mapping[str, object] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_beta_slow": -1.0,
    "defrag_thold": -1.0,
    "type_k": KV_TYPE_F16,
    "type_v": KV_TYPE_F16,
    "abort_callback": None,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
    "ctx_other": None,
}


def find_library() -> Path:
    """The library inside the installed wheel, found without importing it. Raises `LibraryUnusable`."""
    spec = find_spec("xllamacpp")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = sorted(path for folder in folders for path in Path(folder).glob("xllamacpp*.so"))
    if not found:
        raise LibraryUnusable("The package xllamacpp is not installed for this Python.")
    return found[0]


def check_layout(params: c.Structure, expected: Mapping[str, object]) -> None:
    """Raise `LibraryUnusable` unless default parameters stand where the declared layout has them."""
    wrong = [name for name, value in expected.items() if getattr(params, name) != value]
    if wrong:
        raise LibraryUnusable(
            f"The layout of this libllama is not the one that Perdure was built for ({type(params).__name__}: "
            f"{', '.join(wrong)}). Install the pinned xllamacpp."
        )


def open_library(path: Path | None = None) -> c.CDLL:
    """Load the library at `path` (default: the wheel's), declare its functions and check its layout.

    Raises `LibraryUnusable` with a reason in one sentence.
    """
    path = path or find_library()
    try:
        library = c.CDLL(str(path))
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        reason = str(error).replace(str(path), path.name)  # callers are told it, and paths are not their business
        raise LibraryUnusable(f"{path.name} is not a libllama that Perdure can use: {reason}") from error
    check_layout(library.llama_model_default_params(), MODEL_DEFAULTS)
    check_layout(library.llama_context_default_params(), CONTEXT_DEFAULTS)
    return library


_callbacks: list[object] = []
"""The library keeps bare pointers to callbacks, for as long as the process lives; so must we."""


class Log:
    """Takes the library's log and keeps the latest errors: a refusal gives them as its reason, once."""

    def __init__(self, library: c.CDLL) -> None:
        self._errors: list[str] = []
        callback = LOG_CALLBACK(self._take)
        _callbacks.append(callback)
        library.llama_log_set(callback, None)

    def _take(self, level: int, text: bytes, _user_data: int | None) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == LOG_LEVEL_ERROR and line:
            self._errors.append(line)
            del self._errors[:-8]

    def reason(self) -> str:
        """The first of the errors logged since the last call, and forget them. Empty if there was none.

        The first one names the cause; those after it only report who passed it on.
        """
        first = self._errors[0] if self._errors else ""
        self._errors.clear()
        return first.split(": ", 1)[-1].removeprefix("error loading model: ")
