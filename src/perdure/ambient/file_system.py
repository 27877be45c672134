"""What kind of file system a folder lies on, as Linux tells it. Elsewhere nothing is known and nothing is said.

SQLite's log needs memory that its processes share, and locks and `fsync` that mean what they say. Network file
systems do not have them all, and the folders that container desktops bring in from their host often fail alike.
"""

import logging
import os
import re
from pathlib import Path

from perdure.domain.errors import RefusedToStart

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "coda",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "orangefs",
        "pvfs2",
        "ncpfs",
        "davfs",
        "acfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.davfs2",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.goofys",
        "fuse.gcsfuse",
        "fuse.mount-s3",
        "fuse.curlftpfs",
        "fuse.smbnetfs",
        "fuse.juicefs",
        "fuse.seaweedfs",
        "fuse.gvfsd-fuse",
    }
)
BRIDGED = frozenset(
    {
        "9p",
        "virtiofs",
        "drvfs",
        "fakeowner",
        "osxfs",
        "grpcfuse",
        "fuse.grpcfuse",
        "fuse.osxfs",
        "fuse.fakeowner",
        "vboxsf",
        "prl_fs",
        "vmhgfs",
        "fuse.vmhgfs-fuse",
    }
)

_log = logging.getLogger(__name__)
_OCTAL = re.compile(rb"\\([0-7]{3})")


def kind_of(folder: Path, mounts: str) -> str | None:
    """The type of the file system that `folder` (absolute, without links) lies on, by the text of a `mountinfo`."""
    best, found = -1, None
    for line in mounts.splitlines():
        mount, dash, kind = line.partition(" - ")
        fields = mount.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _plain(fields[4])
        # Of two on one point the later one lies on top.
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, found = len(point.parts), kind.partition(" ")[0]
    return found


def kind(folder: Path) -> str | None:
    """The type of the file system that a folder lies on, or would if it were made. None where that is not known."""
    try:
        # Resolved first: the look at an automatic mount point mounts it.
        return kind_of(folder.resolve(), MOUNTS.read_text("utf-8", "surrogateescape"))
    except (OSError, RuntimeError):  # a loop of links, which the next one to open it reports
        return None


def refuse_unsafe(folder: Path, *, allow_network: bool) -> None:
    """Raise `RefusedToStart` for a data folder on a network file system; a line in the log for what is doubtful."""
    found = kind(folder)
    if found in NETWORK and not allow_network:
        raise RefusedToStart(
            f"The data folder {folder} is on a network file system ({found}), where a database can be damaged or "
            "stand still. Choose a local folder with --data, or set PERDURE_ALLOW_NETWORK_FOLDER=true to use it all "
            "the same."
        )
    if doubt := doubts(found):
        _log.warning("the data folder %s is on %s", folder, doubt)


def doubts(found: str | None) -> str | None:
    """What is to be said against that type of file system."""
    if found not in NETWORK and found not in BRIDGED:
        return None
    what = "a network file system" if found in NETWORK else "a folder of the host, passed through to this machine"
    return f"{what} ({found}), where databases have been damaged; a local folder or a named volume is safe"


def _plain(field: str) -> Path:
    """A path of the table, in which blanks, tabs, line ends and backslashes are written as octal numbers."""
    written = field.encode("utf-8", "surrogateescape")
    return Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), written)))
