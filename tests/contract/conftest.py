"""A registry of each kind, made and empty, for every test of these folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.db.database import Database
from lakeward.registry import Registry
from tests.support import registries


@pytest.fixture
def database(made_url: str) -> Iterator[Database]:
    opened = Database(made_url)
    yield opened
    opened.close()


@pytest.fixture
def registry(made_url: str, tmp_path: Path) -> Iterator[Registry]:
    with registries.open_at(made_url, tmp_path) as opened:
        yield opened
