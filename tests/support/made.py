"""Registries that are made once and copied for each test: a copy takes milliseconds, a migration a second."""

from __future__ import annotations

import tempfile
from pathlib import Path

import sqlalchemy as sa

from lakeward.db import migrate
from lakeward.db.database import Database
from tests.support.postgres import PostgresServer


class MadeRegistries:
    """One of each kind, made when the first test asks for it."""

    def __init__(self) -> None:
        self._file: bytes | None = None
        self._database: str | None = None

    def sqlite(self, folder: Path) -> str:
        """The URL of a copy in `folder`."""
        if self._file is None:
            with tempfile.TemporaryDirectory() as made:
                path = Path(made) / "registry.db"
                _make(f"sqlite:///{path}")
                self._file = path.read_bytes()
        copy = folder / "registry.db"
        copy.write_bytes(self._file)
        return f"sqlite:///{copy}"

    def postgresql(self, server: PostgresServer) -> str:
        """The URL of a copy on `server`, the same at each call."""
        if self._database is None:
            url = server.create_database()
            _make(url)
            self._database = sa.make_url(url).database
            assert self._database is not None
        return server.create_database(template=self._database)


def _make(url: str) -> None:
    database = Database(url)
    migrate.create_or_upgrade(database)
    database.close()
