"""Processes of their own for tests of several writers; quick to start, since they are forked from one that is warm."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "alembic.command",
        "pandas",  # pyarrow looks for it when the first rows are written
        "pyiceberg.table",
        "lakeward.db.migrate",
        "lakeward.maintenance.database_upkeep",
        "lakeward.storage.local",
        "tests.contract.db.rows",
        "tests.faults.fleet_process",
        "tests.faults.steps",
    ]
)


def start(target: Callable[..., None], each: Iterable[tuple[Any, ...]]) -> list[BaseProcess]:
    """A process for each tuple of arguments."""
    started: list[BaseProcess] = [CONTEXT.Process(target=target, args=arguments, daemon=True) for arguments in each]
    for process in started:
        process.start()
    return started


def running(processes: list[BaseProcess]) -> bool:
    return any(process.is_alive() for process in processes)


def expect_success(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
