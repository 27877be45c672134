"""Where the data folder may lie: a real start, told by the system that its folder is on a network."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system import mounted
from tests.system.care import names
from tests.system.server import Server


def on_file_system(folder: Path, kind: str, **settings: Any) -> tuple[Server, list[str]]:
    """A service on a folder of that kind, not started, and what goes before its command."""
    mounts = folder.with_name("mounts")
    mounts.write_text(f"30 22 0:40 / {folder} rw - {kind} there rw\n")
    return Server(folder, **settings), [sys.executable, "-P", str(Path(mounted.__file__)), str(mounts)]


@pytest.mark.proves("E-19")
def test_a_start_on_a_network_is_refused(tmp_path: Path) -> None:
    """One line with the setting that overrides it; nothing is written there."""
    server, prefix = on_file_system(tmp_path / "share", "nfs4")
    with server:
        server.spawn(*prefix)
        assert (server.first_line(), server.wait()) == ("", 1)
    (line,) = server.errors.read_text().splitlines()
    assert "is on a network file system (nfs4)" in line
    assert "PERDURE_ALLOW_NETWORK_FOLDER=true" in line
    assert "share" not in names(tmp_path)


def test_a_folder_that_is_open_to_others_is_one_warning(tmp_path: Path, tiny_model: Path) -> None:
    """It serves all the same; a folder that it makes is open to nobody."""
    with Server(tmp_path / "data", tiny_model) as server:
        for mode, warnings in ((None, 0), (0o755, 1)):
            if mode is not None:
                server.data.chmod(mode)
            server.start()
            assert server.terminate() == 0
            told = [each for each in server.errors.read_text().splitlines() if '"level": "warning"' in each]
            assert [f"chmod 700 {server.data}" in each for each in told] == [True] * warnings


@pytest.mark.proves("E-19", "E-20")
@pytest.mark.parametrize(("kind", "settings"), [("nfs4", {"allow_network_folder": "true"}), ("9p", {})])
def test_what_is_doubtful_is_one_warning(
    tmp_path: Path, tiny_model: Path, kind: str, settings: dict[str, str]
) -> None:
    """It serves all the same."""
    server, prefix = on_file_system(tmp_path / "share", kind, **settings)
    server.model = tiny_model
    server.model_name = tiny_model.stem
    with server:
        server.start(*prefix)
        assert server.ended(server.create(max_output_tokens=3)["id"])["status"] == "incomplete"
        assert server.terminate() == 0
    (line,) = [each for each in server.errors.read_text().splitlines() if '"level": "warning"' in each]
    assert f"({kind})" in line
