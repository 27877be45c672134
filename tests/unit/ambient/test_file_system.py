"""What a data folder lies on: told from the table of mounts, refused on a network, and doubted behind a bridge."""

import logging
from pathlib import Path

import pytest

from perdure.ambient import file_system
from perdure.ambient.file_system import BRIDGED, NETWORK, kind, kind_of, refuse_unsafe
from perdure.domain.errors import RefusedToStart

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /srv/share rw,relatime shared:5 master:1 - nfs4 host:/export rw,vers=4.2
31 30 0:41 / /srv/share/local rw - xfs /dev/vdb rw
32 22 0:42 / /mnt/two\040words\134\011 rw - cifs //host/two\040words rw
33 22 0:43 / /mnt/over rw - nfs host:/old rw
34 22 0:44 / /mnt/over rw - tmpfs tmpfs rw
35 22 0:45 / /mnt/auto rw - autofs systemd-1 rw
36 35 0:46 / /mnt/auto/disk rw - fuse.sshfs me@host: rw
nonsense
"""


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/", "ext4"),
        ("/home/me", "ext4"),
        ("/srv/share", "nfs4"),
        ("/srv/share/deep/er", "nfs4"),
        ("/srv/shared", "ext4"),
        ("/srv/share/local/data", "xfs"),
        ("/mnt/two words\\\t/data", "cifs"),
        ("/mnt/two", "ext4"),
        ("/mnt/over/data", "tmpfs"),
        ("/mnt/auto/disk/data", "fuse.sshfs"),
    ],
)
def test_the_longest_mount_point_tells(folder: str, found: str) -> None:
    """Whole names of folders count, the later of two on one point, and octal numbers are characters."""
    assert kind_of(Path(folder), MOUNTS) == found


def test_what_is_not_utf_8_is_a_path_too() -> None:
    """The table holds bytes."""
    line = b"40 22 0:50 / /mnt/caf\xe9 rw - smb3 //host/x rw".decode("utf-8", "surrogateescape")
    assert kind_of(Path("/mnt/caf\udce9/data"), line) == "smb3"


def table(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the system say that a folder is on such a file system."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:40 / {folder} rw - {kind} there rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", mounts)


@pytest.mark.proves("E-19")
@pytest.mark.parametrize("name", sorted(NETWORK))
def test_a_network_file_system_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the setting that overrides it, which leaves a warning. The folder need not be there, and a link is
    followed."""
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "link").symlink_to(share)
    table(share, name, monkeypatch, tmp_path)
    for folder in (share, share / "not/there", tmp_path / "link" / "data"):
        with pytest.raises(RefusedToStart, match=r"network file system .*PERDURE_ALLOW_NETWORK_FOLDER=true"):
            refuse_unsafe(folder, allow_network=False)
    assert caplog.records == []
    refuse_unsafe(share, allow_network=True)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"network file system ({name})" in caplog.text
    refuse_unsafe(tmp_path / "data", allow_network=False)


@pytest.mark.proves("E-20")
@pytest.mark.parametrize("name", sorted(BRIDGED))
def test_a_bridged_folder_is_one_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the type and what is safe."""
    table(tmp_path / "bridged", name, monkeypatch, tmp_path)
    refuse_unsafe(tmp_path / "bridged" / "data", allow_network=False)
    (record,) = caplog.records
    assert f"({name})" in record.getMessage()
    assert "named volume" in record.getMessage()


def test_where_nothing_is_known_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on macOS."""
    monkeypatch.setattr(file_system, "MOUNTS", tmp_path / "no")
    assert kind(tmp_path) is None
    refuse_unsafe(tmp_path, allow_network=False)
    assert caplog.records == []


def test_this_system_is_understood() -> None:
    """The real table says what the kernel's own folder is."""
    assert kind(Path("/proc/self")) == "proc"
