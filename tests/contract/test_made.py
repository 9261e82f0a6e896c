"""What the tests of registries on PostgreSQL are given: a database that others have used is as one that nobody has."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from lakeward.db import schema
from tests.support.made import MadeRegistries
from tests.support.postgres import PostgresServer
from tests.support.registries import make_table, open_at, register

TABLES = [table.name for table in schema.metadata.sorted_tables]


def held(server: PostgresServer, url: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows, and where the sequences stand."""
    with server.connect(dbname=sa.make_url(url).database) as connection:
        found = {name: connection.execute(f"SELECT * FROM {name}".encode()).fetchall() for name in TABLES}
        found["sequences"] = connection.execute(
            "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1"
        ).fetchall()
    return found


def test_a_database_that_was_used_is_as_it_was_made_and_one_that_was_changed_is_not_used_again(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    made = MadeRegistries()
    with made.postgresql(postgres_server) as first:
        new = held(postgres_server, first)
        with open_at(first, tmp_path) as registry:
            register(registry, make_table(registry), [1, 2, 3])
        assert held(postgres_server, first) != new
    with made.postgresql(postgres_server) as second:
        assert second != first, "who was left over from the test before could write into it"
        assert held(postgres_server, second) == new
        with postgres_server.connect(dbname=sa.make_url(second).database) as connection:
            connection.execute("ALTER TABLE tables DISABLE TRIGGER USER")
    with made.postgresql(postgres_server) as third:
        with postgres_server.connect(dbname=sa.make_url(third).database) as connection:
            disabled = "SELECT count(*) FROM pg_trigger WHERE tgenabled = 'D'"
            assert connection.execute(disabled).fetchone() == (0,)
        assert held(postgres_server, third) == new
