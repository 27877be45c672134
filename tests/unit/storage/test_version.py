"""Which SQLite is trusted."""

import pytest

from perdure.domain.errors import RefusedToStart
from perdure.storage.sqlite.version import refuse_faulty, trusted


@pytest.mark.parametrize(
    "version", [(3, 6, 23), (3, 7, 0), (3, 40, 1), (3, 44, 5), (3, 50, 6), (3, 51, 0), (3, 51, 2)]
)
def test_a_version_with_the_fault_is_not_trusted(version: tuple[int, int, int]) -> None:
    """3.7.0 to 3.51.2, and what has no log at all."""
    assert not trusted(version)


@pytest.mark.parametrize("version", [(3, 44, 6), (3, 50, 7), (3, 50, 9), (3, 51, 3), (3, 54, 1), (4, 0, 0)])
def test_a_repaired_version_is_trusted(version: tuple[int, int, int]) -> None:
    """The repair and its two backports."""
    assert trusted(version)


def test_a_faulty_sqlite_is_refused_with_the_remedy() -> None:
    """One line that says what to install."""
    with pytest.raises(RefusedToStart, match=r"^SQLite 3\.40\.1 .* pip install --upgrade apsw$"):
        refuse_faulty("3.40.1")


def test_the_sqlite_in_use_is_trusted() -> None:
    """The one that the tests run on."""
    refuse_faulty()
