"""Small commits beside PyIceberg's, with its SQL catalog on SQLite: the same rows and the same files, in one run.

append: 100 rows become a file and a commit. Files that exist: a Parquet file is looked at and committed; Lakeward reads its
footer, computes the statistics and registers it under an intent, which is what `add_files` does too. Lakeward's commits and
files are durable (synced); PyIceberg syncs its catalog alone. All are measured in turn, commit by commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from common import SCHEMA, Options, Report, Writer, in_turn, lake_in, main, median, rows
from pyiceberg.catalog.sql import SqlCatalog

from lakeward import Lake
from lakeward.arrow import statistics
from lakeward.registry import intents
from lakeward.storage.parquet_footers import encode_footer
from lakeward.tables import registration
from lakeward.tables.records.files import AppendResult, DataFile

COMMITS = 300
FLUSH_EVERY = 100
LAST = 20  # commits at the end whose median is the figure 'at 300'


def run(options: Options, report: Report) -> None:
    catalog = _catalog(options.folder)
    appended, added = (catalog.create_table(f"bench.{name}", rows().schema) for name in ("appended", "added"))
    data = rows()
    paths = _files(options.folder / "given", data)
    theirs_to_add = iter(paths)
    with (
        lake_in(options.folder / "lazy") as lazy,
        lake_in(options.folder / "flushed") as flushed,
        lake_in(options.folder / "files") as files,
        lake_in(options.folder / "flushed_files") as flushed_files,
    ):
        for lake in (lazy, flushed):
            lake.create_table("bench.rows", SCHEMA)
        given, given_flushed = _Given(files, paths), _Given(flushed_files, paths)
        every = _every(FLUSH_EVERY, lambda: flushed.flush("bench.rows"))
        every_given = _every(FLUSH_EVERY, lambda: flushed_files.flush("bench.files"))
        ours, ours_flushed, theirs = in_turn(
            COMMITS,
            lambda: lazy.append("bench.rows", data),
            lambda: (flushed.append("bench.rows", data), next(every)),
            lambda: appended.append(data),
        )
        _compare(report, "append", ours, ours_flushed, theirs)
        ours, ours_flushed, theirs = in_turn(
            COMMITS,
            given.register,
            lambda: (given_flushed.register(), next(every_given)),
            lambda: added.add_files([next(theirs_to_add)]),
        )
        _compare(report, "files that exist", ours, ours_flushed, theirs)


def _compare(report: Report, what: str, ours: list[float], flushed: list[float], theirs: list[float]) -> None:
    """At 300 the median of the last commits; a flush falls into one of 100, so that with it the mean counts."""
    last, their_last = median(ours[-LAST:]), median(theirs[-LAST:])
    mean, their_mean = sum(flushed[-FLUSH_EVERY:]) / FLUSH_EVERY, sum(theirs[-FLUSH_EVERY:]) / FLUSH_EVERY
    report.add(f"{what}: Lakeward, no flush, at {COMMITS} commits", last * 1e3, "ms")
    report.add(f"{what}: Lakeward, a flush every {FLUSH_EVERY}, mean of the last {FLUSH_EVERY}", mean * 1e3, "ms")
    report.add(f"{what}: PyIceberg, first {LAST} commits", median(theirs[:LAST]) * 1e3, "ms")
    report.add(f"{what}: PyIceberg, at {COMMITS} commits", their_last * 1e3, "ms")
    report.add(f"{what}: PyIceberg against Lakeward, no flush", their_last / last, "x", "target 10")
    report.add(f"{what}: PyIceberg against Lakeward, a flush every {FLUSH_EVERY}", their_mean / mean, "x", "target 10")


def _catalog(folder: Path) -> SqlCatalog:
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/iceberg")
    catalog.create_namespace("bench")
    return catalog


def _files(folder: Path, data: Any) -> list[str]:
    folder.mkdir()
    paths = [f"{folder}/{i}.parquet" for i in range(COMMITS)]
    for path in paths:
        pq.write_table(data, path)
    return paths


def _every(count: int, work: Any) -> Any:
    """Does `work` at every `count`-th step."""
    step = 0
    while True:
        step += 1
        yield work() if step % count == 0 else None


class _Given:
    """Registers files that exist, one a commit."""

    def __init__(self, lake: Lake, paths: list[str]) -> None:
        self._writer = Writer(lake)
        self._schema = lake.metadata("bench.files").schema
        self._ids = [leaf.field_id for leaf in statistics.leaves(self._schema)]
        self._paths = iter(paths)

    def register(self) -> AppendResult:
        registry, table = self._writer.registry, self._writer.table
        intent = intents.open_intent(registry, table)
        return registration.register(registry, table, intent, [self._data_file(next(self._paths))])

    def _data_file(self, path: str) -> DataFile:
        footer = pq.read_metadata(path)
        return msgspec.structs.replace(
            self._writer.file,
            path=f"file://{path}",
            size=Path(path).stat().st_size,
            row_count=footer.num_rows,
            statistics=statistics.from_footer(footer, self._schema, ids=self._ids),
            split_offsets=statistics.split_offsets(footer),
            footer=encode_footer(footer),
        )


if __name__ == "__main__":
    main(run, __doc__)
