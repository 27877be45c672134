"""`text`: pieces of text out of token bytes."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.parts import Part, Text
from perdure.runtime.llamacpp.text import Pieces, Plain, Run

valid = st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace"))
broken = st.binary(max_size=30)
mixed = st.lists(valid | broken, max_size=6).map(b"".join)


def chop(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut bytes into tokens of the sizes given, over and over; a size of 0 is a token without bytes."""
    tokens: list[bytes] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        tokens.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return tokens


def decode(tokens: list[bytes], first: int = 0) -> list[Run]:
    """Every piece from the token `first` on, the last one by `finish`."""
    pieces = Pieces(lambda token: tokens[token], Plain())
    runs: list[Run] = []
    for token in range(first, len(tokens)):
        pieces.add(token)
        runs += filter(None, [pieces.take()])
    return [*runs, pieces.finish(whole=True)]


def text_of(run: Run) -> str:
    """The text of a piece that has nothing else."""
    return "".join(part.text if isinstance(part, Text) else "?" for part in run.parts)


def text(shown: str) -> tuple[Part, ...]:
    return (Text(shown),)


@given(data=mixed, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_pieces_join_to_what_decoding_everything_gives(data: bytes, sizes: list[int]) -> None:
    """However the bytes are spread over tokens, and with bytes that are no character."""
    tokens = chop(data, sizes)
    runs = decode(tokens)
    assert "".join(map(text_of, runs)) == b"".join(tokens).decode("utf-8", "replace")
    assert [token for run in runs for token in run.tokens] == list(range(len(tokens)))


@given(data=mixed, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_a_text_can_go_on_after_any_piece(data: bytes, sizes: list[int]) -> None:
    """A decoder that starts empty at a piece's end gives the pieces that the first one gave."""
    tokens = chop(data, sizes)
    runs = decode(tokens)
    at = 0
    for done, run in enumerate(runs):
        at += len(run.tokens)
        assert decode(tokens, at) == (runs[done + 1 :] or [Run((), ())])


@given(text=st.text(max_size=20))
def test_no_piece_ends_inside_a_character(text: str) -> None:
    """One byte a token: a piece for each character, which holds all its bytes."""
    data = text.encode("utf-8", "replace")
    runs = decode([bytes([byte]) for byte in data])[:-1]
    assert [text_of(run) for run in runs] == list(data.decode())
    assert [len(run.tokens) for run in runs] == [len(character.encode()) for character in data.decode()]


def test_tokens_without_text_come_with_the_next_piece_or_the_end() -> None:
    """A control token and the first bytes of a character wait; the end mark comes with the end."""
    tokens = [b"", b"\xe2", b"\x82", b"\xac", b"", b""]
    pieces = Pieces(lambda token: tokens[token], Plain())
    taken: list[Run | None] = []
    for token in range(4):
        pieces.add(token)
        taken.append(pieces.take())
    assert taken == [None, None, None, Run(text("€"), (0, 1, 2, 3))]
    pieces.add(4)
    assert pieces.take() is None
    assert pieces.finish(5, whole=True) == Run((), (4, 5))


def test_an_unfinished_character_at_the_end_is_replaced_once() -> None:
    """Three of four bytes are one U+FFFD."""
    assert decode([b"a", b"\xf0\x9f", b"\x98"])[-1] == Run(text("\ufffd"), (1, 2))
