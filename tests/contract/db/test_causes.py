"""What has gone wrong with a database is told in Lakeward's words, with the way out; what the database says is chained."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from lakeward.db.database import Database
from lakeward.errors import LakewardError, RegistryUnavailable
from tests.support.postgres import PostgresServer


def told(url: str) -> LakewardError:
    database = Database(url)
    try:
        with pytest.raises(LakewardError) as refused, database.read() as connection:
            connection.execute(sa.text("SELECT count(*) FROM sqlite_master"))
        return refused.value
    finally:
        database.close()


def causes(error: BaseException) -> Iterator[str]:
    while error.__cause__ is not None:
        error = error.__cause__
        yield str(error)


@pytest.mark.parametrize(
    ("changed", "what", "way"),
    [
        ({"username": "nobody1"}, "there is no such user or database", "check the user"),
        ({"database": "none"}, "there is no such user or database", "the database's name"),
        ({"port": 1}, "nothing listens there", "check that it runs"),
        ({"host": "no.such.host.invalid"}, "the name of its host is not known", "the address"),
    ],
    ids=["user", "database", "port", "host"],
)
def test_why_postgresql_is_not_reached_is_told(
    postgres_server: PostgresServer, pg_url: str, changed: dict[str, object], what: str, way: str
) -> None:
    url = sa.make_url(pg_url).set(**changed)  # type: ignore[arg-type]
    error = told(url.render_as_string(hide_password=False))
    assert what in str(error) and way in str(error)
    assert any("connection" in said or "resolve" in said for said in causes(error)), "the driver's words are chained"
    assert not any(said in str(error) for said in causes(error))


@pytest.mark.parametrize("word", ["resolve", "refused", "does not exist"])
def test_the_words_of_a_statement_are_no_cause_of_a_connection_that_breaks(pg_url: str, word: str) -> None:
    database = Database(pg_url)
    try:
        with pytest.raises(RegistryUnavailable) as broken, database.read() as connection:
            driver = connection.connection.dbapi_connection
            assert isinstance(driver, psycopg.Connection)
            with socket.socket(fileno=os.dup(driver.fileno())) as open_:
                open_.shutdown(socket.SHUT_RDWR)
            connection.execute(sa.text("SELECT :text"), {"text": word})
        assert "does not answer: the connection broke" in str(broken.value)
    finally:
        database.close()


def test_why_a_sqlite_file_is_not_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as other:
        other.executescript("PRAGMA page_size = 4096; CREATE TABLE t (a); CREATE INDEX i ON t (a)")
    other.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xee" * 3996 + whole[4096:])
    error = told(f"sqlite:///{path}")
    assert "the file is damaged" in str(error)
    assert any("malformed" in said for said in causes(error)) and "malformed" not in str(error)
