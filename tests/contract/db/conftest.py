"""A registry of each kind for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeward.db.database import Database


@pytest.fixture
def database(made_url: str) -> Iterator[Database]:
    """A registry that is made, and empty."""
    opened = Database(made_url)
    yield opened
    opened.close()
