"""An open registry of each kind for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.registry import Registry
from tests.support import registries


@pytest.fixture
def registry(made_url: str, tmp_path: Path) -> Iterator[Registry]:
    with registries.open_at(made_url, tmp_path) as opened:
        yield opened
