"""Small appends beside PyIceberg's with its SQL catalog (SQLite): the same rows, the same files, in one run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.common import NAME, copies, folder, lake, median, one_file, register, sample, seconds, show

LAST = 20  # the median of the last so many commits


def main() -> None:
    commits = 300
    figures: dict[str, float] = {}
    with folder() as at, lake(at) as opened:
        table, file = one_file(opened)
        figures["Lakeward append, no flush, ms"] = 1000 * median(
            [seconds(lambda: opened.append(NAME, sample())) for _ in range(commits)][-LAST:]
        )
        figures["Lakeward registration of a file, no flush, ms"] = 1000 * median(
            [sum(register(opened, table, copies(file, 1, i))) for i in range(commits)][-LAST:]
        )
    with folder() as at, lake(at) as opened:
        table, file = one_file(opened)
        start = time.perf_counter()
        for i in range(commits):
            opened.append(NAME, sample())
            if i % 100 == 99:
                opened.flush(NAME)
        figures["Lakeward append with a flush per 100, ms (mean)"] = 1000 * (time.perf_counter() - start) / commits
    with folder() as at:
        catalog = SqlCatalog("c", uri=f"sqlite:///{at}/catalog.db", warehouse=f"file://{at}/warehouse")
        catalog.create_namespace("bench")
        appended = catalog.create_table("bench.a", sample().schema)
        times = [seconds(lambda: appended.append(sample())) for _ in range(commits)]
        figures["PyIceberg append, ms"] = 1000 * median(times[-LAST:])
        figures["PyIceberg append, ms (mean)"] = 1000 * sum(times) / commits
        added = catalog.create_table("bench.b", sample().schema)
        paths = []
        for i in range(commits):
            paths.append(f"{at}/f{i}.parquet")
            pq.write_table(sample(), paths[-1])
        times = [seconds(lambda path=path: added.add_files([path])) for path in paths]  # type: ignore[misc]
        figures["PyIceberg add_files, ms"] = 1000 * median(times[-LAST:])
    figures["append: PyIceberg / Lakeward, no flush"] = (
        figures["PyIceberg append, ms"] / figures["Lakeward append, no flush, ms"]
    )
    figures["append: PyIceberg / Lakeward, a flush per 100 (means)"] = (
        figures["PyIceberg append, ms (mean)"] / figures["Lakeward append with a flush per 100, ms (mean)"]
    )
    figures["files that exist: PyIceberg / Lakeward, no flush"] = (
        figures["PyIceberg add_files, ms"] / figures["Lakeward registration of a file, no flush, ms"]
    )
    show(f"Beside PyIceberg's SQL catalog, at {commits} commits (100 rows, 20 columns)", figures)


if __name__ == "__main__":
    main()
