"""Writers at once: eight processes, and eight threads of one, that register single files; SQLite (durable), PostgreSQL.

On SQLite beside one process alone that does all of their work, measured in turn: the ratio of the two times is the price of
taking turns. Every registration counts whose call returned, and whose file is there in the end: the success rate.
On PostgreSQL once into one table, whose row is the bottleneck, and once into a table each. The test server runs without
fsync, so its figures show the locks and the work, not the disk.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

from common import Options, Report, Writer, forkserver, lake_in, main, median, waits

from lakeward.errors import LakewardError

PROCESSES = 8
ROUNDS = 3


def run(options: Options, report: Report) -> None:
    from tests.support import postgres  # not above: the other processes need none of it

    each = options.pick(50, 500)
    _side_by_side(report, options.folder, each)
    _threads(report, options.folder, each)
    with postgres.running_server() as server:
        for name, tables in (("PostgreSQL, one table", 1), ("PostgreSQL, a table each", PROCESSES)):
            url = server.create_database()
            _measure(report, name, url, options.folder / f"postgresql_{tables}", each, tables)


def _side_by_side(report: Report, folder: Path, each: int) -> None:
    """Rounds of both in turn, in registries of their own; the medians of the rounds."""
    rounds: dict[int, list[float]] = {1: [], PROCESSES: []}
    times: dict[int, list[float]] = {1: [], PROCESSES: []}
    registered = 0
    for number in range(ROUNDS):
        for processes in rounds:
            name = f"sqlite_{processes}_{number}"
            registry = str(folder / f"{name}.db")
            count = PROCESSES * each // processes
            elapsed, took = _run(registry, folder / name, count, 1, processes)
            rounds[processes].append(elapsed)
            times[processes] += took
            if processes > 1:
                with lake_in(folder / name, registry=registry) as lake:
                    registered += lake.table("bench.t0").file_count - processes  # each had a first one, not timed
    total = PROCESSES * each
    report.add("SQLite: writes a second, one process alone", total / median(rounds[1]), "/s")
    report.add(f"SQLite: writes a second, {PROCESSES} processes", total / median(rounds[PROCESSES]), "/s")
    ratio = median([many / one for one, many in zip(rounds[1], rounds[PROCESSES], strict=True)])
    report.add(f"SQLite: time of {PROCESSES} processes against one alone", ratio, "x", "target 1.3")
    report.add("SQLite: success rate", 100 * registered / (ROUNDS * total), "%", "target 99.9")
    waits(report, f"SQLite, {PROCESSES} processes: a registration", times[PROCESSES], "target of p99 100")


def _threads(report: Report, folder: Path, each: int) -> None:
    with lake_in(folder / "threads") as lake:
        writers = [Writer(lake, "bench.t0") for _ in range(PROCESSES)]
        for number, writer in enumerate(writers):
            writer.count = number * 10_000_000
            writer.register()
        before, begun = lake.registry.group_commit.status(), time.monotonic()
        with ThreadPoolExecutor(PROCESSES) as pool:
            futures = [pool.submit(lambda w: [w.register()[1] for _ in range(each)], writer) for writer in writers]
            times = [took for future in futures for took in future.result()]
        elapsed, after = time.monotonic() - begun, lake.registry.group_commit.status()
    report.add(f"SQLite: writes a second, {PROCESSES} threads of one process", PROCESSES * each / elapsed, "/s")
    groups = after.groups - before.groups
    report.add("SQLite, threads: commits in a group", (after.grouped - before.grouped) / max(groups, 1), "")
    waits(report, "SQLite, threads: a registration", times)


def _measure(report: Report, name: str, registry: str, warehouse: Path, each: int, tables: int) -> None:
    elapsed, times = _run(registry, warehouse, each, tables, PROCESSES)
    report.add(f"{name}: registrations a second, {PROCESSES} processes", PROCESSES * each / elapsed, "/s")
    waits(report, f"{name}: a registration", times)


def _run(registry: str, warehouse: Path, each: int, tables: int, count: int) -> tuple[float, list[float]]:
    """(seconds from the first's begin to the last's end, seconds of each registration) of so many processes."""
    with lake_in(warehouse, registry=registry) as lake:
        for number in range(tables):
            Writer(lake, f"bench.t{number}")
    context = forkserver()
    start, answers = context.Barrier(count), context.Queue()
    processes = [
        context.Process(target=_write, args=(registry, warehouse, f"bench.t{i % tables}", i, each, start, answers))
        for i in range(count)
    ]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    elapsed = max(ended for _, ended, _ in found) - min(begun for begun, _, _ in found)
    return elapsed, [took for _, _, times in found for took in times]


def _write(
    registry: str,
    warehouse: Path,
    table: str,
    number: int,
    each: int,
    start: Barrier,
    answers: multiprocessing.Queue,  # type: ignore[type-arg]
) -> None:
    with lake_in(warehouse, registry=registry) as lake:
        writer = Writer(lake, table)
        writer.count = number * 10_000_000  # paths of its own
        writer.register()
        start.wait()
        begun = time.monotonic()
        times = []
        for _ in range(each):
            with contextlib.suppress(LakewardError):  # its file is missing in the end
                times.append(writer.register()[1])
        answers.put((begun, time.monotonic(), times))


if __name__ == "__main__":
    main(run, __doc__)
