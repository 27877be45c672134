"""New names, seeds and secrets from the system's randomness."""

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts like the number, reads without mix-ups
_TIME_BITS, _RANDOM_BITS, _CHARS = 48, 80, 26


class RandomNames:
    """Names that nobody can guess."""

    def ident(self, at: int) -> str:
        """48 bits of milliseconds and 80 random bits, 26 characters. `at` is in microseconds."""
        milliseconds = (at // 1000) & (1 << _TIME_BITS) - 1
        number = milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_CHARS)))

    def seed(self) -> int:
        """0 to 2**31 - 1."""
        return secrets.randbits(31)

    def token(self) -> str:
        """32 random bytes, marked as ours so that scanners for leaked secrets can know it."""
        return f"perdure_{secrets.token_urlsafe(32)}"
