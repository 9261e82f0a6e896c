"""What every benchmark shares: where it ran, medians, small lakes, and one way to show figures.

Machines are noisy: compare ratios of one run, not seconds of two. Each script takes --json.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import lakeward
from lakeward import Lake
from lakeward.model.files import DataFile, Intent
from lakeward.model.tables import Table
from lakeward.pipeline.arrow_write import write_arrow
from lakeward.pipeline.target import WriteTarget
from lakeward.registry import intents, registration, tables

COLUMNS = {f"n{i}": "long" for i in range(10)} | {f"s{i}": "string" for i in range(10)}
NAME = "bench.t"


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder on the disk of the working directory: /tmp may be memory, which would flatter fsync."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as path:
        yield Path(path).absolute()


@contextmanager
def lake(at: Path, **settings: Any) -> Iterator[Lake]:
    with lakeward.connect(at / "registry.db", at / "warehouse", **settings) as opened:
        yield opened


def sample(rows: int = 100) -> pa.Table:
    numbers = {f"n{i}": pa.array(range(i, rows + i), pa.int64()) for i in range(10)}
    return pa.table(numbers | {f"s{i}": [f"value {j % 7}" for j in range(rows)] for i in range(10)})


def one_file(opened: Lake, name: str = NAME) -> tuple[Table, DataFile]:
    """A table of 20 columns, and a real file of it that can be registered under many names."""
    opened.create_table(name, COLUMNS)
    table, metadata = tables.load_with_metadata(opened.registry, name)
    intent = intents.open_intent(opened.registry, table)
    (file,) = write_arrow(WriteTarget(table, metadata, intent, opened.registry.engine(table.location)), sample())
    return table, file


def copies(file: DataFile, count: int, tag: object) -> list[DataFile]:
    return [msgspec.structs.replace(file, path=f"{file.path}-{tag}-{i}") for i in range(count)]


def register(opened: Lake, table: Table, files: list[DataFile]) -> tuple[float, float]:
    """(seconds of the registration, seconds of the intent's own transaction before it)"""
    start = time.perf_counter()
    intent: Intent = intents.open_intent(opened.registry, table)
    middle = time.perf_counter()
    registration.register(opened.registry, table, intent, files)
    return time.perf_counter() - middle, middle - start


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(values: list[float]) -> float:
    return statistics.median(values)


def show(title: str, figures: dict[str, Any]) -> None:
    """Figures with where and when they were measured; --json for one JSON object."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    where = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"
    )
    if "--json" in sys.argv:
        print(msgspec.json.encode({"title": title, "where": where, "figures": figures}).decode())
        return
    print(f"{title} ({where})")
    for name, value in figures.items():
        print(f"  {name:<66} {value:,.4g}" if isinstance(value, float) else f"  {name:<66} {value}")
