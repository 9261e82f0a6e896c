"""What a run of the demo found, as one record, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

Step = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much
T = TypeVar("T")


def stepped(what: str, items: Sequence[T], step: Step) -> Iterator[T]:
    """The items; `step` is told before each and after the last."""
    for done, each in enumerate(items):
        step(what, done, len(items))
        yield each
    step(what, len(items), len(items))


class TableReport(msgspec.Struct, frozen=True):
    """What is registered of one table. Sizes in bytes; `pending` and `snapshots` as before and after the first read."""

    rows: int
    files: int
    bytes: int
    partitions: int
    pending_before: int
    pending_after: int
    snapshots_before: int
    snapshots_after: int


class Comparison(msgspec.Struct, frozen=True):
    """One table as one engine read it, against its source."""

    table: str
    engine: str
    rows: int
    columns: int  # whose checksums were compared
    differences: list[str]  # empty: equal


class Overhead(msgspec.Struct, frozen=True):
    """What registration added to Spark's writes, over appends that follow a first one (which warms Spark up). Seconds."""

    appends: int
    write: float
    register: float

    @property
    def ratio(self) -> float:
        return self.register / self.write if self.write else 0.0


class WorkloadReport(msgspec.Struct, frozen=True):
    """What the components did with small files that arrived while they ran. Sizes in bytes."""

    table: str
    rows: int
    files_arrived: int
    files_after: int
    bytes_before: int  # of the files that were merged
    bytes_after: int
    snapshots: dict[str, int]  # by what triggered them
    columns: int
    cache: float  # the schema manager's hit ratio
    events: dict[str, int]  # delivered, by component


class DemoReport(msgspec.Struct, frozen=True):
    folder: str
    tables: dict[str, TableReport]
    source_rows: dict[str, int]
    comparisons: list[Comparison]
    overhead: Overhead
    answer: list[dict[str, object]]  # of one query with a join, as Spark gave it
    seconds: dict[str, float]  # of each part of the run, and in all
    workload: WorkloadReport | None = None

    @property
    def failures(self) -> list[str]:
        """One sentence for each engine's answer that differs from the source."""
        return [f"{c.table} through {c.engine}: {'; '.join(c.differences)}" for c in self.comparisons if c.differences]


def as_document(report: DemoReport) -> dict[str, object]:
    """The report for scripts: one JSON object."""
    rows: dict[str, dict[str, int]] = {name: {"source": count} for name, count in report.source_rows.items()}
    for each in report.comparisons:
        rows[each.table][each.engine] = each.rows
    return {
        "folder": report.folder,
        "rows": rows,
        "files": {
            name: {
                "files": table.files,
                "rows": table.rows,
                "bytes": table.bytes,
                "partitions": table.partitions,
                "pending_before_read": table.pending_before,
                "pending_after_read": table.pending_after,
            }
            for name, table in report.tables.items()
        },
        "snapshots": {
            name: {"before_read": table.snapshots_before, "after_read": table.snapshots_after}
            for name, table in report.tables.items()
        },
        "checks": {
            "comparisons": len(report.comparisons),
            "columns": sum(c.columns for c in report.comparisons),
            "failed": report.failures,
        },
        "query": report.answer,
        "seconds": {name: round(value, 3) for name, value in report.seconds.items()},
        "registration": {
            "appends": report.overhead.appends,
            "write_seconds": round(report.overhead.write, 4),
            "register_seconds": round(report.overhead.register, 4),
        },
        "components": None if report.workload is None else msgspec.to_builtins(report.workload),
        "registration_overhead": round(report.overhead.ratio, 5),
    }
