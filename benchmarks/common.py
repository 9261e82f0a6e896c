"""What the benchmarks share: options, the environment's line, timing, figures, and a table with a file to register.

A script is `main(run, __doc__)`; `run(options, report)` measures and adds figures. Times are medians of repeats, and what is
compared is measured in the same run, one after the other in turn, so that the machine's mood hits both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for tests.support, which starts PostgreSQL and S3

import lakeward  # noqa: E402
from lakeward.arrow.target import table_target  # noqa: E402
from lakeward.arrow.write import write_arrow  # noqa: E402
from lakeward.names import parse_table  # noqa: E402
from lakeward.registry import Registry, intents  # noqa: E402
from lakeward.tables import registration, tables  # noqa: E402
from lakeward.tables.records.files import DataFile  # noqa: E402
from lakeward.tables.records.tables import Table  # noqa: E402

FOLDER = ROOT / ".cache" / "bench"  # on the checkout's disk: a folder in memory would make durable commits free


@dataclass(frozen=True)
class Options:
    full: bool
    folder: Path  # empty, removed at the end

    def pick(self, quick: int, full: int) -> int:
        return full if self.full else quick


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    note: str = ""


@dataclass
class Report:
    environment: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    quiet: bool = False  # with --json

    def add(self, name: str, value: float, unit: str, note: str = "") -> float:
        self.figures.append(Figure(name, value, unit, note))
        if not self.quiet:
            print(f"{name:<72} {_shown(value):>12} {unit:<9} {note}".rstrip(), flush=True)
        return value


def main(run: Callable[[Options, Report], None], description: str | None) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all sizes; takes longer")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of lines")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to measure (the disk matters)")
    arguments = parser.parse_args()
    report = Report(environment(), quiet=arguments.json)
    if not arguments.json:
        print("  ".join(f"{name}: {value}" for name, value in report.environment.items()), flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    started = time.perf_counter()
    try:
        run(Options(arguments.full, folder), report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.perf_counter() - started, 1)
    if arguments.json:
        figures = [asdict(figure) for figure in report.figures]
        print(json.dumps({"environment": report.environment, "seconds": seconds, "figures": figures}, indent=2))
    else:
        print(f"({seconds} s)\n")


def environment() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "memory": f"{memory / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "lakeward": lakeward.__version__,
        "load": f"{os.getloadavg()[0]:.1f}",  # of the minute before: what else ran on the machine
    }


def _shown(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


# Timing -----------------------------------------------------------------------------------------------------------------
def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(rounds: int, *works: Callable[[], object]) -> list[list[float]]:
    """Seconds of each, measured in turn: first all once, then all again."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, into in zip(works, times, strict=True):
            into.append(seconds(work))
    return times


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def waits(report: Report, name: str, times: Sequence[float], note: str = "") -> None:
    """The median, the 99th percentile (with a note) and the longest, in ms."""
    for label, value in (("p50", median(times)), ("p99", percentile(times, 99)), ("longest", max(times))):
        report.add(f"{name}, {label}", value * 1e3, "ms", note if label == "p99" else "")


def forkserver() -> ForkServerContext:
    """Starts processes from one that has imported Lakeward, which takes each of them seconds otherwise."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lakeward.lake.lake", "lakeward.arrow.write"])
    return context


# A table and its file -----------------------------------------------------------------------------------------------------
SCHEMA = {f"n{i}": "long" for i in range(10)} | {f"s{i}": "string" for i in range(9)}
ROWS = 100


def rows(count: int = ROWS) -> pa.Table:
    numbers = {f"n{i}": pa.array(range(i, i + count), pa.int64()) for i in range(10)}
    return pa.table(numbers | {f"s{i}": [f"{i}-{j % 7}" for j in range(count)] for i in range(9)})


@contextmanager
def lake_in(folder: Path, **settings: Any) -> Iterator[lakeward.Lake]:
    registry = settings.pop("registry", folder / "registry.db")
    with lakeward.connect(registry, settings.pop("warehouse", folder / "warehouse"), **settings) as lake:
        yield lake


def written_file(registry: Registry, table: Table, data: pa.Table | None = None) -> DataFile:
    """A Parquet file below the table's location that is not registered."""
    metadata = tables.metadata(registry, table)
    intent = intents.open_intent(registry, table)
    (file,) = write_arrow(
        table_target(table, metadata, intent, registry.engine(table.location)), rows() if data is None else data
    )
    return file


def copies(file: DataFile, count: int, start: int) -> list[DataFile]:
    """The same file under other names: registration looks at no object."""
    return [msgspec.structs.replace(file, path=f"{file.path}-{start + i}") for i in range(count)]


class Writer:
    """Registers copies of one file in one table, timing the commit and the intent apart."""

    def __init__(self, lake: lakeward.Lake, name: str = "bench.files") -> None:
        self.registry = lake.registry
        known = {table.identifier: table for table in lake.tables()}
        self.table: Table = known.get(parse_table(name)) or lake.create_table(name, SCHEMA)
        self.file: DataFile = written_file(self.registry, self.table)
        self.count = 0

    def register(self, files: int = 1) -> tuple[float, float]:
        """(seconds of the intent's transaction, seconds of the registration)"""
        started = time.perf_counter()
        intent = intents.open_intent(self.registry, self.table)
        declared = time.perf_counter() - started
        made = copies(self.file, files, self.count)
        self.count += files
        return declared, seconds(lambda: registration.register(self.registry, self.table, intent, made))


def register_until(folder: Path, ready: Event, stop: Event, answers: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """Register single files until `stop` is set; answers (when, seconds of the intent, seconds of the registration) of each."""
    with lake_in(folder) as lake:
        writer, times = Writer(lake, "bench.beside"), []
        ready.set()
        while not stop.is_set():
            times.append((time.monotonic(), *writer.register()))
        answers.put(times)
