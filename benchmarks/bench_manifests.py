"""Manifests: what many of them cost flushes and queries, what merging costs and keeps, and what preparing them ahead would save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from common import Options, Report, Writer, in_turn, lake_in, main, median
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.astha import Astha
from lakeward.components.iceberg_updater import IcebergUpdater
from lakeward.iceberg import metadata
from lakeward.iceberg.commit import build_snapshot
from lakeward.snapshots import manifest_merging, snapshot_commit
from lakeward.tables import snapshots
from lakeward.tables.records.properties import MANIFEST_COUNT, MANIFEST_MERGE
from tests.support import duck

COUNTS = (1, 10, 30, 100, 300)
PENDING = (1, 10, 100, 1_000)
REGISTRATIONS, EVERY = 10_000, 100


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder / "many") as lake:
        _many(lake, options, report)
    with lake_in(options.folder / "merge") as lake:
        _merge(lake, options, report)
    with lake_in(options.folder / "ahead") as lake:
        _ahead(lake, report)
    for name, is_merging in (("never merged", False), ("merged", True)):
        with lake_in(options.folder / name) as lake:
            _growth(lake, options, report, name, is_merging)


class Spent(NamedTuple):
    """Seconds by the clock, and of this thread's processor time, which other work on the machine hardly moves."""

    wall: float
    cpu: float


def _spent(work: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.thread_time()
    work()
    return Spent(time.perf_counter() - wall, time.thread_time() - cpu)


def _flush(writer: Writer, pending: int = 1) -> Spent:
    writer.register(pending)
    return _spent(lambda: snapshot_commit.flush(writer.registry, writer.table.table_id))


def _add(report: Report, name: str, spent: Sequence[Spent]) -> None:
    note = f"processor {median([each.cpu for each in spent]) * 1e3:.1f}"
    report.add(f"{name}, p50", median([each.wall for each in spent]) * 1e3, "ms", note)


# Many manifests --------------------------------------------------------------------------------------------------------
def _many(lake: Lake, options: Options, report: Report) -> None:
    """Flushes and plans with so many manifests in the list, one file in each."""
    writer = Writer(lake)
    made = 0
    for count in COUNTS:
        while made < count - 1:
            _flush(writer)
            made += 1
        _add(report, f"flush of 1 file, {count:,} manifests", [_flush(writer) for _ in range(9)])
        made += 9
        location = lake.table(writer.table.identifier).metadata_location
        assert location is not None
        with duck.connect() as connection:
            query = f"select count(*) from iceberg_scan('{location}') where n0 < 0"
            works = (
                lambda location=location: list(StaticTable.from_metadata(location).scan("n0 < 0").plan_files()),  # type: ignore[misc]
                lambda query=query: connection.execute(query).fetchall(),  # type: ignore[misc]
            )
            by_pyiceberg, by_duckdb = in_turn(options.pick(5, 9), *works)
        report.add(f"PyIceberg plans a query, {made:,} manifests, p50", median(by_pyiceberg) * 1e3, "ms")
        report.add(f"DuckDB answers a query of no file, {made:,} manifests, p50", median(by_duckdb) * 1e3, "ms")


# A merge ---------------------------------------------------------------------------------------------------------------
def _merge(lake: Lake, options: Options, report: Report) -> None:
    for number, files in ((20, 1), (100, 1), (20, 100)):
        writer = Writer(lake, f"bench.merge_{number}_{files}")
        lake.set_properties(writer.table.identifier, {MANIFEST_COUNT.name: str(number)})
        times = []
        for _ in range(options.pick(2, 5)):
            for _ in range(number):
                _flush(writer, files)
            times.append(_spent(lambda writer=writer, number=number: _merged(writer, number)))  # type: ignore[misc]
        _add(report, f"merge of {number} manifests of {files} files", times)


def _merged(writer: Writer, least: int) -> None:
    merged = manifest_merging.merge_manifests(writer.registry, writer.table.table_id)
    assert merged.replaced >= least, merged


# Prepared ahead --------------------------------------------------------------------------------------------------------
def _ahead(lake: Lake, report: Report) -> None:
    """Of a flush, what could be done before it is asked for: the manifests of the files that wait."""
    for pending in PENDING:
        writer = Writer(lake, f"bench.ahead_{pending}")
        _flush(writer)
        whole: list[Spent] = []
        looks: list[Spent] = []
        saved: list[Spent] = []
        for _ in range(9 if pending < 1_000 else 3):
            writer.register(pending)
            looks.append(_spent(lambda writer=writer: snapshots.pending(lake.registry, writer.table.table_id)))  # type: ignore[misc]
            state = snapshots.pending(lake.registry, writer.table.table_id)
            assert len(state.files) == pending
            every, one = _manifests(lake, writer, state), _manifests(lake, writer, state, 1)
            saved.append(Spent(every.wall - one.wall, every.cpu - one.cpu))
            whole.append(_spent(lambda writer=writer: snapshot_commit.flush(lake.registry, writer.table.table_id)))  # type: ignore[misc]
        _add(report, f"flush of {pending:,} pending files", whole)
        _add(report, "  of which reading what waits", looks)
        _add(report, "  of which manifests prepared ahead would save", saved)


def _manifests(lake: Lake, writer: Writer, state: snapshots.Pending, files: int | None = None) -> Spent:
    """Seconds of encoding a snapshot of so many of the files that wait; objects are read from and written to memory."""
    engine = lake.registry.engine(writer.table.location)
    assert state.table.metadata_location is not None
    document = metadata.decode(engine.read(state.table.metadata_location))
    current = metadata.current_snapshot(document)
    assert current is not None
    known = {current["manifest-list"]: engine.read(current["manifest-list"])}
    return _spent(
        lambda: build_snapshot(
            document,
            state.files[:files],
            read=known.__getitem__,
            write=lambda *_: None,
            prefix="memory/",
            timestamp_ms=document["last-updated-ms"],
        )
    )


# Growth ----------------------------------------------------------------------------------------------------------------
@contextmanager
def _updating(lake: Lake) -> Iterator[IcebergUpdater]:
    updater, astha = IcebergUpdater(lake), Astha(lake)
    updater.register_with_astha(astha)
    updater.start()
    try:
        with astha:
            yield updater
    finally:
        updater.stop()


def _growth(lake: Lake, options: Options, report: Report, name: str, is_merging: bool) -> None:
    """10,000 registrations of one file, each hundred followed by a flush, while the updater merges what is there to merge."""
    warm = Writer(lake, "bench.warm")
    for _ in range(3):
        _flush(warm, 10)
    writer = Writer(lake)
    if not is_merging:
        lake.set_properties(writer.table.identifier, {MANIFEST_MERGE.name: "false"})
    windows: list[Spent] = []
    flushes: list[Spent] = []
    with _updating(lake) as updater:
        for _ in range(options.pick(REGISTRATIONS // 4, REGISTRATIONS) // EVERY):
            windows.append(_spent(lambda: _window(writer, flushes)))
    made = len(windows) * EVERY
    _add(report, f"{name}: first hundred of {made:,} registrations, with a flush", windows[:1])
    _add(report, f"{name}: last hundred", windows[-1:])
    for what, spent in (("hundreds", windows), ("flushes alone", flushes)):
        first, last = spent[:10], spent[-10:]
        wall = median([each.wall for each in last]) / median([each.wall for each in first])
        cpu = median([each.cpu for each in last]) / median([each.cpu for each in first])
        report.add(f"{name}: last ten {what} to the first ten, medians", wall, "times", f"processor {cpu:.2f}")
    listed = lake.manifests(writer.table.identifier)
    counts = updater.counts()
    report.add(
        f"{name}: manifests at the end", len(listed), "", f"{counts.merges} merges, {counts.conflicts} conflicts"
    )


def _window(writer: Writer, flushes: list[Spent]) -> None:
    for _ in range(EVERY - 1):
        writer.register()
    flushes.append(_flush(writer))


if __name__ == "__main__":
    main(run, __doc__)
