"""What the README shows is what happens."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "survive_kill.py"


@pytest.mark.real_model
@pytest.mark.proves("R3")
def test_the_demo_holds_what_it_shows() -> None:
    """Killed in the middle of a sentence and read on: the same text, no gap, one end."""
    shown = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=300, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stdout.count("   yes  ") == 4
    assert "NO" not in shown.stdout
