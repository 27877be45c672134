"""`model`: what a file says, and files that are refused."""

import ctypes
import random
from pathlib import Path

import pytest

from perdure.runtime.llamacpp import library as lib
from perdure.runtime.llamacpp.model import Model, ModelRefused
from perdure.testing.tiny_gguf import CONTEXT_TRAIN, SPECIAL, write_tiny_model


def test_the_facts_of_a_file(tiny: Model) -> None:
    """Everything that the card and the memory plan rest on."""
    assert tiny.architecture == "llama"
    assert tiny.file_type == 7
    assert tiny.weight_types() == ("f32", "q8_0")
    assert tiny.context_train == CONTEXT_TRAIN
    assert tiny.kv_bytes_per_token() == 2 * 2 * (16 + 16) * 2  # layers, heads, key and value, two bytes
    assert tiny.chat_template is not None
    assert tiny.first_token is None


def test_the_words_of_a_model_do_not_need_its_weights(library: ctypes.CDLL, tiny: Model) -> None:
    """`vocab_only` gives the same facts and the same tokens."""
    model = Model(library, tiny.path, vocab_only=True)
    try:
        assert model.kv_bytes_per_token() == tiny.kv_bytes_per_token()
        assert model.context_train == tiny.context_train
        assert model.tokenize("Öl", controls=True) == tiny.tokenize("Öl", controls=True)
    finally:
        model.close()
        model.close()


@pytest.mark.real_model
def test_the_bundled_model_takes_23_kilobytes_a_token(real_words: Model) -> None:
    """30 layers of 3 heads of 64 numbers, keys and values, two bytes each."""
    assert real_words.kv_bytes_per_token() == 23_040
    assert real_words.context_train == 8192
    assert real_words.weight_types() == ("f32", "q4_1", "q8_0")


@pytest.mark.parametrize("text", ["", "plain", "Ö€😀", "a\0b", " \n\t ", "<|im_end|>"])
def test_text_comes_back_from_its_tokens(tiny: Model, text: str) -> None:
    """Byte for byte, control tokens spelled out as text included."""
    tokens = tiny.tokenize(text, controls=False)
    assert b"".join(tiny.bytes_of(token) for token in tokens) == text.encode()
    assert not tiny.controls.intersection(tokens)


def test_control_tokens_have_no_text(tiny: Model) -> None:
    """They are recognised where that is asked for, and two of the tiny model's end a turn."""
    tokens = [tiny.tokenize(name, controls=True) for name in SPECIAL]
    assert tokens == [[0], [1], [2]]
    assert all(tiny.bytes_of(token) == b"" for token in range(3))
    assert [tiny.ends(token) for token in range(4)] == [True, False, True, False]


def test_the_tiny_model_is_the_same_each_time(tmp_path: Path, tiny: Model) -> None:
    """Bytes and all; another seed gives another one."""
    write_tiny_model(tmp_path / "again.gguf")
    write_tiny_model(tmp_path / "other.gguf", seed=1)
    assert (tmp_path / "again.gguf").read_bytes() == tiny.path.read_bytes()
    assert (tmp_path / "other.gguf").read_bytes() != tiny.path.read_bytes()


def test_a_missing_file_is_refused(library: ctypes.CDLL, tmp_path: Path) -> None:
    """With the system's words."""
    with pytest.raises(ModelRefused, match=r"its file cannot be read \(No such file or directory\)"):
        Model(library, tmp_path / "gone.gguf")


def test_what_llama_cpp_says_of_a_file_names_no_path(
    library: ctypes.CDLL, tmp_path: Path, tiny: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does of one that goes away between two looks. A reason is told to every caller."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.path.read_bytes()[:5_000])

    def reason(_: lib.Log) -> str:
        return f"failed to open GGUF file '{path}'"

    monkeypatch.setattr(lib.Log, "reason", reason)
    with pytest.raises(ModelRefused) as caught:
        Model(library, path)
    assert str(caught.value) == "its file cannot be loaded (failed to open GGUF file 'the file')"


@pytest.mark.parametrize("content", [b"", b"GGU", b"#!/bin/sh\necho model\n"])
def test_a_file_that_is_no_model_is_refused(library: ctypes.CDLL, tmp_path: Path, content: bytes) -> None:
    """Nothing, less than a word, and a text."""
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelRefused, match="is not a GGUF file"):
        Model(library, path)


@pytest.mark.parametrize(
    ("kept", "reason"),
    [(4, "."), (100, "."), (5_000, "."), (60_000, "corrupted or incomplete"), (-1, "corrupted or incomplete")],
)
def test_a_truncated_file_is_refused_with_a_reason(
    library: ctypes.CDLL, tmp_path: Path, tiny: Model, kept: int, reason: str
) -> None:
    """Cut in the header, the vocabulary, the weights, or at the last byte: llama.cpp's own words say why."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.path.read_bytes()[:kept])
    with pytest.raises(ModelRefused, match=reason):
        Model(library, path)


@pytest.mark.parametrize("kept", [4, 100, 5_000])
def test_a_truncated_vocabulary_is_refused(library: ctypes.CDLL, tmp_path: Path, tiny: Model, kept: int) -> None:
    """Also where only the words are wanted."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny.path.read_bytes()[:kept])
    with pytest.raises(ModelRefused):
        Model(library, path, vocab_only=True)


def test_random_weights_are_refused(library: ctypes.CDLL, tmp_path: Path, tiny: Model) -> None:
    """They would load, and give logits that are no numbers."""
    data = bytearray(tiny.path.read_bytes())
    data[-60_000:] = random.Random(5).randbytes(60_000)
    path = tmp_path / "random.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelRefused, match="invalid"):
        Model(library, path)
