"""A database with the newest schema, without a store around it."""

from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.connection import enforce_references, open_writer
from perdure.storage.sqlite.migrate import migrate, shipped


@pytest.fixture
def database(tmp_path: Path) -> Generator[apsw.Connection]:
    """A writer's connection."""
    connection = open_writer(tmp_path / "perdure.db")
    migrate(connection, shipped())
    enforce_references(connection)
    yield connection
    connection.close()
