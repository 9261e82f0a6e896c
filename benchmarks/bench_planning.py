"""Planning a scan of one file among many: by its partition and a column, and by a column alone, on SQLite and PostgreSQL.

Files are rows alone: 20 columns with statistics and a footer, in partitions of one column. Each plan is made by a process that
has just connected (its imports are over: PyIceberg's take some 0.3 s); what it takes is compared with reading and judging every file's row.
"""

from __future__ import annotations

import resource
import struct
from pathlib import Path

import msgspec
import sqlalchemy as sa
from common import SCHEMA, Options, Report, forkserver, lake_in, main, median, rows, seconds, written_file

import lakeward
from lakeward.arrow import pruning, scan
from lakeward.db.schema import file_pages
from lakeward.registry import intents
from lakeward.tables import footers, pages, registration
from lakeward.tables import tables as table_rooms
from lakeward.tables.records.files import DataFile

NAME = "bench.planned"
ROUNDS = 5
AT_ONCE = 2_000  # files of a registration


def run(options: Options, report: Report) -> None:
    from tests.support import postgres

    count, partitions = options.pick(50_000, 1_000_000), options.pick(50, 1_000)
    _measure(
        options.folder / "sqlite", str(options.folder / "sqlite" / "registry.db"), "SQLite", count, partitions, report
    )
    with postgres.running_server() as server:
        url = server.create_database()
        _measure(options.folder / "postgresql", url, "PostgreSQL", count, partitions, report)


def _measure(folder: Path, url: str, database: str, count: int, partitions: int, report: Report) -> None:
    title = f"{database}, {count:,} files"
    with lake_in(folder, registry=url, durable=False) as lake:
        filled = seconds(lambda: fill(lake, count, partitions))
        report.add(f"{title}: registered in batches of {AT_ONCE:,}", count / filled, "/s")
        table = lake.table(NAME)
        report.add(
            "  pages made, files a second", count / seconds(lambda: pages.make(lake.registry, table.table_id)), "/s"
        )
        report.add("  pages, bytes a file", _bytes_of_pages(lake) / count, "bytes")
        every = seconds(lambda: lake.files(NAME))
        report.add("  every row read, as lake.files does", every * 1e3, "ms")
        report.add("  compaction's plan", seconds(lambda: lake.plan_compaction(NAME)) * 1e3, "ms")
    middle = count // 2
    one = f"p = {middle % partitions}"
    filters = {
        "a partition and a column": f"{one} and n0 < {middle * 100}",
        "a partition": one,
        "ten partitions and a column": f"p in ({', '.join(map(str, range(10)))}) and n0 = {middle * 100 + 5}",
        "a column": f"n0 = {middle * 100 + 5}",
        "a column's text": f"s0 = 'v{middle:07d}'",
    }
    for name, text in filters.items():
        times, kept, memory = _in_new_process(folder, url, text)
        report.add(f"  a filter of {name}: first plan", times[0] * 1e3, "ms", f"leaves {kept:,}")
        again = report.add("  again, median", median(times[1:]) * 1e3, "ms", f"peak {memory} MB")
        report.add("  against every row", again / every / 1e3, "x")


def _bytes_of_pages(lake: lakeward.Lake) -> int:
    with lake.registry.database.read() as connection:
        return int(connection.execute(sa.select(sa.func.sum(sa.func.length(file_pages.c.data)))).scalar_one())


def fill(lake: lakeward.Lake, count: int, partitions: int) -> None:
    """Files whose n0 runs on from one to the next, whatever their partition."""
    registry = lake.registry
    table = lake.create_table(NAME, {**SCHEMA, "p": "int"}, partition_by=["p"])
    columns = {column["name"]: column["id"] for column in table_rooms.metadata(registry, table).schema["fields"]}
    data = rows().append_column("p", [[0] * 100])
    whole = written_file(registry, table, data)
    for start in range(0, count, AT_ONCE):
        intent = intents.open_intent(registry, table)
        made = [_file(whole, i, i % partitions, columns) for i in range(start, min(start + AT_ONCE, count))]
        registration.register(registry, table, intent, made)


def _file(file: DataFile, number: int, partition: int, columns: dict[str, int]) -> DataFile:
    first, text = number * 100, f"v{number:07d}".encode()
    own = {columns["n0"]: struct.pack("<q", first), columns["s0"]: text, columns["p"]: struct.pack("<i", partition)}
    tops = {**own, columns["n0"]: struct.pack("<q", first + 99)}
    statistics = msgspec.structs.replace(
        file.statistics, lower={**file.statistics.lower, **own}, upper={**file.statistics.upper, **tops}
    )
    return msgspec.structs.replace(
        file,
        path=f"{file.path}-{number}",
        partition={1000: partition},
        partition_path=f"p={partition}",
        statistics=statistics,
    )


def _in_new_process(folder: Path, url: str, text: str) -> tuple[list[float], int, int]:
    context = forkserver()
    answers = context.Queue()
    process = context.Process(target=_plan, args=(folder, url, text, answers))
    process.start()
    answer: tuple[list[float], int, int] = answers.get()
    process.join()
    return answer


def _plan(folder: Path, url: str, text: str, answers: object) -> None:
    assert pruning.Pruner  # which is imported here, and not by the first plan
    with lake_in(folder, registry=url) as lake:
        kept = 0

        def plan() -> None:
            nonlocal kept
            planned, _ = footers.plan(lake.registry, NAME, lambda versions: scan.prepare(versions, None, text))
            kept = len(planned.files)

        times = [seconds(plan) for _ in range(ROUNDS)]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        answers.put((times, kept, memory))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(run, __doc__)
