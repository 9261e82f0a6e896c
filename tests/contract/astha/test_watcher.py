"""How the watcher learns that somebody has committed: told in its own process, by a look at the database of others'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.astha import watcher
from lakeward.astha.watcher import Watcher
from lakeward.registry import Registry
from tests.support.asthas import make_tables, touch
from tests.support.registries import open_at


@pytest.fixture
def other(made_url: str, tmp_path: Path, registry: Registry) -> Iterator[Registry]:
    """A handle that tells this one's watchers nothing, as one of another process."""
    make_tables(registry)
    with open_at(made_url, tmp_path) as opened:
        yield opened


@pytest.fixture
def watching(registry: Registry, other: Registry) -> Iterator[Watcher]:
    opened = Watcher(registry)
    opened.wait(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("quiet_seconds", [0.0, 1e9])  # in a lull, and not
def test_a_commit_of_another_handle_is_noticed_once(
    watching: Watcher, other: Registry, monkeypatch: pytest.MonkeyPatch, quiet_seconds: float
) -> None:
    monkeypatch.setattr(watcher, "QUIET_SECONDS", quiet_seconds)
    assert not watching.wait(0.001)
    touch(other, 1)
    assert watching.wait(0.001)
    assert not watching.wait(0.001)


def test_a_connection_that_is_lost_is_opened_again(watching: Watcher, registry: Registry, other: Registry) -> None:
    registry.database.lookups._own().connection.close()
    assert watching.wait(0.001)  # it cannot tell: reading will
    touch(other, 1)
    assert watching.wait(0.001)
    assert not watching.wait(0.001)
