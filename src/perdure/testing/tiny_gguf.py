"""Writes a random model of 125 kB that loads in 30 ms and draws over a thousand tokens a second.

It is a llama like a large one: byte vocabulary, ChatML template, Q8_0 weights. What it says is noise, in which there
are characters of several bytes and bytes that are no character; it practically never closes its turn, so that a test
gets the length that it asks for.

Run as `python -m perdure.testing.tiny_gguf OUT`. Needs the package `gguf`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from numpy.typing import NDArray

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT_TRAIN = 2048

_LAYERS, _WIDTH, _HEADS, _HEADS_KV, _INNER = 2, 64, 4, 2, 128
_TOKENS = 288  # the specials, 256 bytes, and unused ones up to a multiple of 32
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_tiny_model(path: Path, seed: int = 0, metadata: Mapping[str, float | str] = MappingProxyType({})) -> None:
    """Write the model to `path`; the same arguments give the same bytes. `metadata` are more values, by key."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer)
    for key, value in metadata.items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    _spell(writer)
    for name, weights in _weights(np.random.default_rng(seed)).items():
        if weights.ndim == 1:
            writer.add_tensor(name, weights)
        else:
            quantised = gguf.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter) -> None:
    writer.add_name("tiny-random")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(CONTEXT_TRAIN)
    writer.add_block_count(_LAYERS)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS_KV)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(_TOKENS)


def _spell(writer: gguf.GGUFWriter) -> None:
    spelling = _byte_spelling()
    unused = [f"<unused{n}>" for n in range(_TOKENS - len(SPECIAL) - len(spelling))]
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*SPECIAL, *spelling, *unused])
    writer.add_token_types([control] * len(SPECIAL) + [normal] * 256 + [control] * len(unused))
    writer.add_token_merges([f"{spelling[ord(' ')]} {spelling[ord(' ')]}"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)


def _byte_spelling() -> list[str]:
    """How byte-level vocabularies write each byte: printable ones as themselves, others from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def _weights(random: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Noise, but for the first of the 64 numbers that pass from layer to layer.

    It starts large for every token and no layer adds to it, so it arrives as a constant: what a bias would be. The
    output row of each token that is no byte weighs it strongly negatively, so that such a token is never likely.
    """

    def noise(*shape: int, scale: float = 0.2) -> NDArray[np.float32]:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    ones = np.ones(_WIDTH, np.float32)
    head = _WIDTH // _HEADS
    weights = {
        "token_embd.weight": noise(_TOKENS, _WIDTH, scale=1.0),
        "output_norm.weight": ones,
        "output.weight": noise(_TOKENS, _WIDTH, scale=0.3),
    }
    for layer in range(_LAYERS):
        weights |= {
            f"blk.{layer}.attn_norm.weight": ones,
            f"blk.{layer}.attn_q.weight": noise(_HEADS * head, _WIDTH),
            f"blk.{layer}.attn_k.weight": noise(_HEADS_KV * head, _WIDTH),
            f"blk.{layer}.attn_v.weight": noise(_HEADS_KV * head, _WIDTH),
            f"blk.{layer}.attn_output.weight": noise(_WIDTH, _HEADS * head),
            f"blk.{layer}.ffn_norm.weight": ones,
            f"blk.{layer}.ffn_gate.weight": noise(_INNER, _WIDTH),
            f"blk.{layer}.ffn_up.weight": noise(_INNER, _WIDTH),
            f"blk.{layer}.ffn_down.weight": noise(_WIDTH, _INNER),
        }
        weights[f"blk.{layer}.attn_output.weight"][0] = 0
        weights[f"blk.{layer}.ffn_down.weight"][0] = 0
    weights["token_embd.weight"][:, 0] = 8
    weights["output.weight"][:, 0] = 0
    weights["output.weight"][: len(SPECIAL), 0] = -8
    weights["output.weight"][len(SPECIAL) + 256 :, 0] = -8
    return weights


if __name__ == "__main__":
    write_tiny_model(Path(sys.argv[1]))
