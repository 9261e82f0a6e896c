"""Registries that are made once: a test gets a copy of the file, or a database that the test before has left and that is emptied.

A migration takes a second, and a copy of a database much longer than to empty one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from lakeward.db import migrate
from lakeward.db.database import Database
from tests.support.postgres import PostgresServer

USES = 20  # of a database: deleted rows take room in it until they are many
# What any change of a schema, a privilege or a setting changes. Objects of PostgreSQL's own have lower numbers.
_SCHEMA = """
SELECT md5(string_agg(of, ',' ORDER BY of)) FROM (
  SELECT format('c%s %s', oid, xmin) FROM pg_class WHERE oid >= 16384
  UNION ALL SELECT format('a%s %s %s', attrelid, attnum, xmin) FROM pg_attribute WHERE attrelid >= 16384
  UNION ALL SELECT format('t%s %s', oid, xmin) FROM pg_trigger
  UNION ALL SELECT format('p%s %s', oid, xmin) FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT format('k%s %s', oid, xmin) FROM pg_constraint WHERE oid >= 16384
  UNION ALL SELECT format('n%s %s', oid, xmin) FROM pg_namespace WHERE oid >= 16384 OR nspname = 'public'
  UNION ALL SELECT format('s%s', setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
  UNION ALL SELECT format('x%s', gid) FROM pg_prepared_xacts WHERE database = current_database()
) AS found (of)
"""
_UNUSED = "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences"
_TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT LIKE 'pg\\_%' AND schemaname <> 'information_schema'"


class MadeRegistries:
    """One of each kind, made when the first test asks for it."""

    def __init__(self) -> None:
        self._file: bytes | None = None
        self._template: _Template | None = None
        self._free: list[tuple[str, int]] = []  # URLs of databases that are empty again, and how often each was used

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

    @contextmanager
    def postgresql(self, server: PostgresServer) -> Iterator[str]:
        """The URL of an empty registry on `server` that is the block's own; it is the same server at each call."""
        if self._template is None:
            self._template = _Template(server)
        url, uses = self._free.pop() if self._free else (self._template.copy(), 0)
        try:
            yield url
        finally:
            # Under another name, which nobody knows who was left over.
            url = server.rename_database(url)
            if uses + 1 < USES and self._template.restore(url):
                self._free.append((url, uses + 1))
            else:
                server.drop_database(url)


class _Template:
    """A registry on a server, and what is in it from the start."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        url = server.create_database()
        _make(url)
        self._name = server.name_of(url)
        with server.connect(dbname=self._name) as connection:
            self._schema = connection.execute(_SCHEMA).fetchone()
            names = [row[0] for row in connection.execute(_TABLES)]
            self._rows = {name: _copied(connection, name) for name in names}

    def copy(self) -> str:
        return self._server.create_database(template=self._name)

    def restore(self, url: str) -> bool:
        """Have a copy, which nobody uses, hold again what it held at first. False where more than its rows was changed, or
        where the server's user may not leave triggers out."""
        try:
            return self._restore(url)
        except psycopg.errors.InsufficientPrivilege:
            return False

    def _restore(self, url: str) -> bool:
        with self._server.connect(dbname=self._server.name_of(url)) as connection, connection.transaction():
            if connection.execute(_SCHEMA).fetchone() != self._schema:
                return False
            connection.execute("SET LOCAL session_replication_role = replica")  # no triggers, in any order
            connection.execute(";".join(f"DELETE FROM {name}" for name in self._rows).encode())
            connection.execute(_UNUSED)
            connection.execute("SELECT pg_stat_reset()")  # some tests count deadlocks, and rows that are dead
            for name, rows in self._rows.items():
                if rows:
                    with connection.cursor().copy(f"COPY {name} FROM STDIN".encode()) as copy:
                        copy.write(rows)
        return True


def _copied(connection: psycopg.Connection, name: str) -> bytes:
    with connection.cursor().copy(f"COPY {name} TO STDOUT".encode()) as copy:
        return b"".join(bytes(part) for part in copy)


def _make(url: str) -> None:
    database = Database(url)
    migrate.create_or_upgrade(database)
    database.close()
