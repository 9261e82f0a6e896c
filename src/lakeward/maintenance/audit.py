"""The audit: what the registry says of a table, against the files themselves. It reports, and deletes nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from lakeward.errors import LakewardError, ObjectNotFound
from lakeward.maintenance import repair, strays
from lakeward.maintenance.audit_statistics import file_disagreements, partition_disagreements
from lakeward.registry import Registry
from lakeward.storage.engine import StorageEngine, compute_checksum
from lakeward.storage.parquet_footers import read_footer
from lakeward.tables import whole
from lakeward.tables.bounds import Order
from lakeward.tables.records.files import RegisteredFile
from lakeward.tables.tables import Which, table_of
from lakeward.tables.whole import WholeTable


class Finding(msgspec.Struct, frozen=True):
    """One disagreement. `kind`: counter, statistics, missing, size, rows, checksum, unreadable, metadata (an object of it is
    gone, or is none), unreferenced."""

    kind: str
    what: str  # a file's location, or a counter's name
    detail: str


class AuditReport(msgspec.Struct, frozen=True):
    """Unreferenced objects are findings, but nothing is wrong with the table because of them."""

    table: str
    files: int
    rows: int
    bytes: int
    checksums_verified: int
    checksums_filled: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether the registry and the files agree."""
        return not any(finding.kind != "unreferenced" for finding in self.findings)


def audit(registry: Registry, name: Which, checksums: bool = False) -> AuditReport:
    """Compare counters and statistics with the rows of files, and these with the objects: that they are there, their sizes,
    row counts and what their footers say of columns.

    Args:
        checksums: read every byte: checksums that are there are verified, and those that are missing are filled in.

    Raises:
        TableNotFound, InvalidName.
        StorageError: the storage does not answer.
    """
    table = table_of(registry, name)
    seen = whole.read(registry, table)
    engine, orders = registry.engine(table.location), seen.orders
    findings = list(_counter_findings(seen))
    verified = filled = 0
    for file in [*seen.live, *seen.set_aside]:
        findings += _file_findings(engine, file, orders)
        if checksums:
            finding, was_filled = _check_checksum(registry, engine, file)
            findings += finding
            filled += was_filled
            verified += not was_filled and not finding
    findings += [
        Finding(
            "metadata",
            location,
            f"is not there, or is none of its kind: `lakeward repair {table.identifier}` writes it anew",
        )
        for location in repair.lost(engine, seen.table)
    ]
    findings += _unreferenced(engine, seen)
    return AuditReport(
        table=str(table.identifier),
        files=len(seen.live),
        rows=sum(file.row_count for file in seen.live),
        bytes=sum(file.file_size for file in seen.live),
        checksums_verified=verified,
        checksums_filled=filled,
        findings=findings,
    )


# Counters -------------------------------------------------------------------------------------------------------------------
def _counter_findings(seen: WholeTable) -> Iterator[Finding]:
    rows: Counter[str] = Counter()
    for file in seen.live:
        landing = "landing_" if file.file_type == "json" else ""
        rows[f"{landing}row_count"] += file.row_count
        rows[f"{landing}file_count"] += 1
        rows["landing_size" if landing else "total_size"] += file.file_size
    names = ("row_count", "file_count", "total_size", "landing_row_count", "landing_file_count", "landing_size")
    for name in names:
        if getattr(seen.table, name) != rows[name]:
            yield Finding(
                "counter", f"tables.{name}", f"says {getattr(seen.table, name)}, the files' rows {rows[name]}"
            )
    yield from _partition_findings(seen)


def _partition_findings(seen: WholeTable) -> Iterator[Finding]:
    members: dict[tuple[int, str, str], list[RegisteredFile]] = {}
    for file in seen.live:
        members.setdefault((file.spec_id, file.partition_key, file.file_type), []).append(file)
    orders = seen.orders
    said = {(s.spec_id, s.partition_key, s.file_type): s for s in seen.stats}
    for key in members.keys() | said.keys():
        here, stat = members.get(key, []), said.get(key)
        found = {
            "row_count": sum(file.row_count for file in here),
            "file_count": len(here),
            "total_size": sum(file.file_size for file in here),
        }
        for name, number in found.items():
            value = 0 if stat is None else getattr(stat, name)
            if value != number:
                yield Finding("statistics", f"table_stats {key[1]} {name}", f"says {value}, the files' rows {number}")
        if stat is not None:
            for detail in partition_disagreements(stat, here, orders):
                yield Finding("statistics", f"table_stats {key[1]}", detail)


# Files ----------------------------------------------------------------------------------------------------------------------
def _file_findings(engine: StorageEngine, file: RegisteredFile, orders: Mapping[int, Order]) -> Iterator[Finding]:
    try:
        size = engine.size(file.file_path)
    except ObjectNotFound:
        yield Finding("missing", file.file_path, "the object is not there")
        return
    if size != file.file_size:
        yield Finding("size", file.file_path, f"has {size} bytes, registered were {file.file_size}")
    if file.file_type != "parquet":
        return
    try:
        footer = read_footer(engine, file.file_path)
    except LakewardError as error:
        yield Finding("unreadable", file.file_path, str(error))
        return
    if footer.num_rows != file.row_count:
        yield Finding("rows", file.file_path, f"has {footer.num_rows} rows, registered were {file.row_count}")
    for detail in file_disagreements(file.statistics, footer, orders):
        yield Finding("statistics", file.file_path, detail)


def _check_checksum(registry: Registry, engine: StorageEngine, file: RegisteredFile) -> tuple[list[Finding], bool]:
    """(what is wrong, whether the checksum was missing and is now filled in)."""
    algorithm = "sha256" if file.checksum is None else file.checksum.partition(":")[0]
    try:
        found: str | None
        if algorithm in hashlib.algorithms_available:
            found = compute_checksum(engine, file.file_path, algorithm)
        else:  # one that the store worked out itself, such as crc64nvme: it is asked again
            found = engine.checksum(file.file_path)
    except ObjectNotFound:
        return [], False  # reported as missing already
    if file.checksum is None and found is not None:
        return [], whole.fill_checksum(registry, file, found)
    if found != file.checksum:
        return [Finding("checksum", file.file_path, f"is {found}, registered was {file.checksum}")], False
    return [], False


# Objects that nothing names -------------------------------------------------------------------------------------------------
def _unreferenced(engine: StorageEngine, seen: WholeTable) -> Iterator[Finding]:
    referenced = seen.known
    if seen.table.metadata_location is not None:
        referenced = referenced | strays.reached(
            engine, seen.table.metadata_location, []
        )  # what is lost is a finding above
    for info in engine.list(seen.table.location + "/"):
        if info.location not in referenced and not any(info.location.startswith(prefix) for prefix in seen.prefixes):
            yield Finding("unreferenced", info.location, f"{info.size} bytes that no row and no metadata file names")
