"""New names, seeds and secrets from the system's randomness."""

import base64
import secrets

_ALPHABET = b"0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts like the number, reads without mix-ups
_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CROCKFORD = bytes.maketrans(_STANDARD, _ALPHABET)
_TIME_BITS, _RANDOM_BITS, _CHARS = 48, 80, 26
_BYTES = 20  # what is encoded in whole groups, zeros in front


class RandomNames:
    """Names that nobody can guess."""

    def ident(self, at: int) -> str:
        """48 bits of milliseconds and 80 random bits, 26 characters. `at` is in microseconds."""
        milliseconds = (at // 1000) & (1 << _TIME_BITS) - 1
        number = milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        return base64.b32encode(number.to_bytes(_BYTES)).translate(_CROCKFORD).decode()[-_CHARS:]

    def seed(self) -> int:
        """0 to 2**31 - 1."""
        return secrets.randbits(31)

    def token(self) -> str:
        """32 random bytes, marked as ours so that scanners for leaked secrets can know it."""
        return f"perdure_{secrets.token_urlsafe(32)}"
