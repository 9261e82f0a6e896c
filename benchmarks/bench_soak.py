"""A soak: one writer of 35 one-row appends a second, `lakeward serve` with its defaults, and a query every 3 seconds.

The table has three partitions and gets a snapshot every 5 seconds at least. What counts: no load fails, a load's 99th
percentile stays below a second, every row that was acknowledged before a query began is in its answer, metadata stays below
10 MB for 100 snapshots, and the server's memory levels off.

Ten minutes with --full, one without.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from common import Options, Report, lake_in, main, waits
from pyiceberg.catalog import Catalog, load_catalog

from lakeward import Lake
from tests.support.servers import free_ports

NAME = "soak.events"
RATE = 35  # appends a second
EVERY = 3.0  # seconds from query to query
START_SECONDS = 120


class Loaded(NamedTuple):
    at: float  # seconds since the start
    seconds: float
    error: str | None
    missing: int  # rows that were acknowledged before and are not in the answer


def run(options: Options, report: Report) -> None:
    seconds = options.pick(60, 600)
    with lake_in(options.folder) as lake:
        table = lake.create_table(
            NAME,
            {"id": "long", "part": "int"},
            partition_by=["part"],
            properties={"lakeward.snapshot.every-seconds": "5"},
        )
        metadata = Path(table.location.removeprefix("file://")) / "metadata"
        with _serving(options.folder) as (process, catalog):
            loads, appended, memory, sizes = _soak(lake, process, catalog, metadata, seconds)
        _tell(report, lake, loads, appended, memory, sizes)


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Catalog]]:
    (port,) = free_ports(1)
    where = ["--registry", str(folder / "registry.db"), "--warehouse", str(folder / "warehouse")]
    command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", str(port), *where]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process, _catalog(port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(150)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _catalog(port: int) -> Catalog:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return load_catalog("soak", type="rest", uri=f"http://127.0.0.1:{port}")
        except Exception:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def _soak(
    lake: Lake, process: subprocess.Popen[bytes], catalog: Catalog, metadata: Path, seconds: float
) -> tuple[list[Loaded], int, list[int], list[int]]:
    appended = [0]
    done = threading.Event()
    writer = threading.Thread(target=_write, args=(lake, appended, done))
    writer.start()
    loads: list[Loaded] = []
    memory: list[int] = []
    sizes: list[int] = []
    started = time.monotonic()
    try:
        while (now := time.monotonic() - started) < seconds:
            loads.append(_load(catalog, appended, now))
            memory.append(_resident(process.pid))
            sizes.append(sum(path.stat().st_size for path in metadata.rglob("*") if path.is_file()))
            time.sleep(max(0.0, now + EVERY - (time.monotonic() - started)))
    finally:
        done.set()
        writer.join()
    loads.append(_load(catalog, appended, time.monotonic() - started))
    return loads, appended[0], memory, sizes


def _write(lake: Lake, appended: list[int], done: threading.Event) -> None:
    started = time.monotonic()
    while not done.is_set():
        lake.append(NAME, [{"id": appended[0], "part": appended[0] % 3}])
        appended[0] += 1
        time.sleep(max(0.0, started + appended[0] / RATE - time.monotonic()))


def _load(catalog: Catalog, appended: list[int], at: float) -> Loaded:
    acknowledged = appended[0]
    started = time.perf_counter()
    try:
        table = catalog.load_table(NAME)
        seconds = time.perf_counter() - started
        ids = table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    except Exception as error:
        return Loaded(at, time.perf_counter() - started, f"{type(error).__name__}: {error}"[:200], 0)
    twice = len(ids) - len(set(ids))
    assert not twice, f"{twice} rows twice"
    return Loaded(at, seconds, None, len(set(range(acknowledged)) - set(ids)))


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def _tell(report: Report, lake: Lake, loads: list[Loaded], appended: int, memory: list[int], sizes: list[int]) -> None:
    report.add("rows appended", appended, "")
    report.add("loads", len(loads), "")
    failed = [each for each in loads if each.error]
    report.add("loads that failed", len(failed), "", (failed[0].error or "") if failed else "target 0")
    report.add("rows acknowledged before a load and not in it", sum(each.missing for each in loads), "", "target 0")
    waits(report, "a load", [each.seconds for each in loads if not each.error], "target of p99 1,000")
    made = lake.snapshots(NAME, expired=True)
    report.add("snapshots made", len(made), "")
    for operation in sorted({each.operation for each in made}):
        report.add(f"snapshots made: {operation}", sum(each.operation == operation for each in made), "")
    report.add("metadata at the end", sizes[-1] / 1e6, "MB", "target 10 for 100 snapshots")
    report.add("metadata at most", max(sizes) / 1e6, "MB")
    for part in range(5):
        at = min(len(memory) - 1, part * len(memory) // 4)
        report.add(f"memory of the server at {part * 25} % of the time", memory[at] / 1e6, "MB")


if __name__ == "__main__":
    main(run, __doc__)
