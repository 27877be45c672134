"""Token ids as bytes: four each, the lowest first."""

from struct import pack, unpack


def packed(tokens: tuple[int, ...]) -> bytes:
    """The ids in a row."""
    return pack(f"<{len(tokens)}I", *tokens)


def unpacked(blob: bytes) -> tuple[int, ...]:
    """The ids again."""
    return unpack(f"<{len(blob) // 4}I", blob)
