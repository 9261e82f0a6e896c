"""Fixtures for all suites. A server starts when the first test asks for it, and ends with the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog

from lakeward import logs
from lakeward.db import lock_order
from tests.support import postgres
from tests.support import s3 as s3_support
from tests.support.made import MadeRegistries
from tests.support.postgres import PostgresServer
from tests.support.s3 import S3

os.environ[lock_order.CHECKED] = "1"  # in the processes that tests start too

# How long an example takes, and how soon one is made, is the machine's affair.
# Each run tries other examples.
hypothesis.settings.register_profile(
    "tests", deadline=None, max_examples=40, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")


@pytest.fixture(autouse=True)
def logged_as_at_the_start() -> Iterator[None]:
    """A command run by a test says where messages go: each test begins as a new process does."""
    yield
    logs._told.clear()
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres.running_server() as server:
        yield server


@pytest.fixture
def pg_url(postgres_server: PostgresServer) -> Iterator[str]:
    """SQLAlchemy's URL of an empty PostgreSQL database that is this test's own."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a registry runs on each kind of database, unless it or its module is marked `on` some of them."""
    marked = metafunc.definition.get_closest_marker("on")
    for name in ("registry_url", "made_url"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, marked.args if marked else ("sqlite", "postgresql"), indirect=True)


@pytest.fixture
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of a kind that a registry can live in."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    url: str = request.getfixturevalue("pg_url")
    return url


@pytest.fixture(scope="session")
def made_registries() -> MadeRegistries:
    return MadeRegistries()


@pytest.fixture
def made_pg_url(postgres_server: PostgresServer, made_registries: MadeRegistries) -> Iterator[str]:
    """A registry on PostgreSQL that is made already, and empty."""
    with made_registries.postgresql(postgres_server) as url:
        yield url


@pytest.fixture
def made_url(request: pytest.FixtureRequest, tmp_path: Path, made_registries: MadeRegistries) -> str:
    """A registry that is made already, and empty: a copy, which takes no migration."""
    if request.param == "sqlite":
        return made_registries.sqlite(tmp_path)
    url: str = request.getfixturevalue("made_pg_url")
    return url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    with s3_support.running_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """The S3 server, with an empty bucket that is this test's own."""
    return s3_server.with_new_bucket()
