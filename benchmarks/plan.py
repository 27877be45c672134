"""What a benchmark is told before it starts."""

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Where to put data (a folder of its own, removed afterwards), and how long it may take. `size` is for those that
    run only by hand."""

    folder: Path
    quick: bool
    size: int = 1_000_000

    def rounds(self, quick: int, full: int) -> int:
        """How many rounds."""
        return quick if self.quick else full

    def note(self, text: str) -> None:
        """Tell whoever waits how far it is."""
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()
