"""Manifests: what many of them cost flushes and queries, what merging costs and keeps, and what preparing them ahead would save."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from common import Options, Report, Writer, in_turn, lake_in, main, median, seconds
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.astha import Astha
from lakeward.components import flushing, manifest_merging
from lakeward.components.iceberg_updater import IcebergUpdater
from lakeward.iceberg import metadata
from lakeward.iceberg.commit import build_snapshot
from lakeward.iceberg.merging import COUNT_PROPERTY, ENABLED_PROPERTY
from lakeward.registry import snapshots
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
    for name, count in (("no merging", None), ("merged at 100", 100), ("merged at 20", 20)):
        with lake_in(options.folder / f"growth-{count}") as lake:
            _growth(lake, options, report, name, count)


def _flush(writer: Writer, pending: int = 1) -> float:
    writer.register(pending)
    return seconds(lambda: flushing.flush(writer.registry, writer.table.table_id))


# Many manifests --------------------------------------------------------------------------------------------------------
def _many(lake: Lake, options: Options, report: Report) -> None:
    """Flushes and plans with so many manifests in the list, one file in each."""
    writer = Writer(lake)
    made = 0
    for count in COUNTS:
        while made < count - 1:
            _flush(writer)
            made += 1
        report.add(f"flush of 1 file, {count:,} manifests, p50", median([_flush(writer) for _ in range(9)]) * 1e3, "ms")
        made += 9
        location = lake.table(writer.table.identifier).metadata_location
        assert location is not None
        with duck.connect() as connection:
            query = f"select count(*) from iceberg_scan('{location}') where n0 < 0"
            plan, count_ = in_turn(
                options.pick(3, 7),
                lambda location=location: list(StaticTable.from_metadata(location).scan("n0 < 0").plan_files()),
                lambda query=query: connection.execute(query).fetchall(),  # type: ignore[misc]
            )
        report.add(f"PyIceberg plans a query, {made:,} manifests, p50", median(plan) * 1e3, "ms")
        report.add(f"DuckDB answers a query of no file, {made:,} manifests, p50", median(count_) * 1e3, "ms")


# A merge ---------------------------------------------------------------------------------------------------------------
def _merge(lake: Lake, options: Options, report: Report) -> None:
    for number, files in ((20, 1), (100, 1), (20, 100)):
        writer = Writer(lake, f"bench.merge_{number}_{files}")
        lake.set_properties(writer.table.identifier, {COUNT_PROPERTY: str(number)})
        times = []
        for _ in range(options.pick(2, 5)):
            for _ in range(number):
                _flush(writer, files)
            merged = manifest_merging.merge_manifests(lake.registry, writer.table.table_id)
            assert merged.replaced >= number, merged
            times.append(merged.seconds)
        report.add(f"merge of {number} manifests of {files} files, p50", median(times) * 1e3, "ms")


# Prepared ahead --------------------------------------------------------------------------------------------------------
def _ahead(lake: Lake, report: Report) -> None:
    """Of a flush, what could be done before it is asked for: the manifests of the files that wait."""
    for pending in PENDING:
        writer = Writer(lake, f"bench.ahead_{pending}")
        _flush(writer)
        whole, manifests, look, parts = [], [], [], []
        for _ in range(7 if pending < 1_000 else 3):
            writer.register(pending)
            started = time.perf_counter()
            state = snapshots.pending(lake.registry, writer.table.table_id)
            look.append(time.perf_counter() - started)
            manifests.append(_manifests(lake, writer, state) - _manifests(lake, writer, state, 1))
            parts.append(len(state.files))
            whole.append(seconds(lambda writer=writer: flushing.flush(lake.registry, writer.table.table_id)))  # type: ignore[misc]
        assert set(parts) == {pending}
        note = f"of which reading what waits {median(look) * 1e3:.1f}"
        report.add(f"flush of {pending:,} pending files, p50", median(whole) * 1e3, "ms", note)
        report.add(f"prepared ahead, it would save at most, {pending:,} files", median(manifests) * 1e3, "ms")


def _manifests(lake: Lake, writer: Writer, state: snapshots.Pending, files: int | None = None) -> float:
    """Seconds of encoding a snapshot of so many of the files that wait; objects are read from and written to memory."""
    engine = lake.registry.engine(writer.table.location)
    assert state.table.metadata_location is not None
    document = metadata.decode(engine.read(state.table.metadata_location))
    current = metadata.current_snapshot(document)
    assert current is not None
    known = {current["manifest-list"]: engine.read(current["manifest-list"])}
    return seconds(
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
def _updating(lake: Lake, enabled: bool) -> Iterator[IcebergUpdater | None]:
    if not enabled:
        yield None
        return
    updater, astha = IcebergUpdater(lake), Astha(lake)
    updater.register_with_astha(astha)
    updater.start()
    try:
        with astha:
            yield updater
    finally:
        updater.stop()


def _growth(lake: Lake, options: Options, report: Report, name: str, count: int | None) -> None:
    """10,000 registrations of one file, each hundred followed by a flush, while the updater merges what is there to merge."""
    warm = Writer(lake, "bench.warm")
    for _ in range(3):
        _flush(warm, 10)
    writer = Writer(lake)
    rule = {ENABLED_PROPERTY: "false"} if count is None else {COUNT_PROPERTY: str(count)}
    lake.set_properties(writer.table.identifier, rule)
    windows, flushes = [], []
    with _updating(lake, count is not None) as updater:
        for _ in range(options.pick(REGISTRATIONS // 2, REGISTRATIONS) // EVERY):
            started = time.perf_counter()
            for _ in range(EVERY):
                writer.register()
            flushes.append(seconds(lambda: flushing.flush(writer.registry, writer.table.table_id)))
            windows.append(time.perf_counter() - started)
    made = len(windows) * EVERY
    report.add(f"{name}: first {EVERY} of {made:,} registrations and their flush", windows[0] * 1e3, "ms")
    report.add(f"{name}: last {EVERY}", windows[-1] * 1e3, "ms")
    report.add(
        f"{name}: last ten hundreds to first ten, medians", median(windows[-10:]) / median(windows[:10]), "times"
    )
    report.add(
        f"{name}: flushes, last ten to first ten, medians", median(flushes[-10:]) / median(flushes[:10]), "times"
    )
    report.add(f"{name}: flush, last ten, p50", median(flushes[-10:]) * 1e3, "ms")
    location = lake.table(writer.table.identifier).metadata_location
    assert location is not None
    engine = lake.registry.engine(location)
    rows = manifest_merging.listed(metadata.decode(engine.read(location)), engine.read)
    report.add(f"{name}: manifests at the end", len(rows), "")
    if updater is not None:
        print(updater.counts(), file=sys.stderr)


if __name__ == "__main__":
    main(run, __doc__)
