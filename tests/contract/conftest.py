"""A registry of each kind, made and empty, for every test of these folders."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.db.database import Database
from lakeward.registry import Registry
from tests.contract import plan_rules, statements
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


# The plans of all statements ------------------------------------------------------------------------------------------------
FOLDER = Path(__file__).parent
FAULTS = pytest.StashKey[list[str]]()


def pytest_configure() -> None:
    statements.start()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process that shared the tests has ended."""
    statements.add(getattr(node, "workeroutput", {}).get("statements", pickle.dumps([])))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["statements"] = statements.taken()
    elif exitstatus == pytest.ExitCode.OK and _is_whole(config):
        with tempfile.TemporaryDirectory() as folder:
            faults = config.stash[FAULTS] = plan_rules.check(statements.noted(), Path(folder))
        if faults:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests of this folder are asked for."""
    narrowing = ("keyword", "markexpr", "deselect", "lf", "ignore", "ignore_glob")
    chosen = [getattr(config.option, name) for name in narrowing]
    return not any(chosen) and any(FOLDER.is_relative_to(config.invocation_params.dir / each) for each in config.args)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if (faults := config.stash.get(FAULTS, None)) is not None:
        terminalreporter.section("query plans")
        counts = Counter(each.database for each in statements.noted())
        terminalreporter.line(
            ", ".join(f"{count} statements on {database}" for database, count in sorted(counts.items()))
        )
        for fault in faults:
            terminalreporter.line(fault, red=True)
