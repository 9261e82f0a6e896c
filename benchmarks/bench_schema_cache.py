"""Schemas from memory beside the same from the registry, on SQLite: a table of 20 columns, and one with 51 versions."""

from __future__ import annotations

from collections.abc import Callable

from common import Options, Report, in_turn, lake_in, main, median, percentile, seconds

from lakeward.components import SchemaManager
from lakeward.tables import tables
from lakeward.tables.sql import tables as store

NAME = "bench.schemas"


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder / "lake", durable=False) as lake:
        table = lake.create_table(NAME, {f"c{i}": "long" for i in range(20)})
        manager, cache = SchemaManager(lake), lake.registry.schemas

        def read() -> None:
            with lake.registry.database.read() as connection:
                store.metadata_version(connection, table.table_id, 1)

        def miss() -> None:
            cache.clear()
            manager.get_schema(table)

        count = options.pick(2_000, 20_000)
        _compare(report, "get_schema of a Table", lambda: manager.get_schema(table), read, count)
        _compare(report, "get_schema by name", lambda: manager.get_schema(NAME), read, count)
        report.add("get_schema that misses, p50", median([seconds(miss) for _ in range(count)]) * 1e6, "µs")

        def load() -> None:
            tables.load_with_metadata(lake.registry, NAME)

        def load_without() -> None:
            cache.suspend()
            load()
            cache.resume()

        _compare(report, "the table and its metadata, at each append", load, load_without, count)
        for number in range(50):
            lake.set_properties(NAME, {"n": str(number)})
        lake.append(NAME, [{"c0": 1}])

        def scan() -> None:
            lake.scan(NAME).read_all()

        def scan_without() -> None:
            cache.suspend()
            scan()
            cache.resume()

        _compare(report, "a scan of one file, 51 versions", scan, scan_without, options.pick(100, 500))
        report.add(
            "memory of a version of 20 columns", cache.stats().memory_usage / cache.stats().cache_size / 1024, "KiB"
        )


def _compare(report: Report, what: str, cached: Callable[[], object], plain: Callable[[], object], count: int) -> None:
    cached()
    found, read = in_turn(count, cached, plain)
    report.add(f"{what}, p50", median(found) * 1e6, "µs")
    report.add(f"{what}, p99", percentile(found, 99) * 1e6, "µs")
    report.add(f"{what}: from the registry, p50", median(read) * 1e6, "µs", f"{median(read) / median(found):.1f} x")


if __name__ == "__main__":
    main(run, __doc__)
