"""Operations metadata of a cartridge-warp database, brought over: as often as one likes, each row once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.errors import InvalidInput
from lakeward.model.operations import (
    DeadLetterStatus,
    ErrorStatus,
    ErrorType,
    MarkerType,
    OperationType,
    SyncMode,
    SyncStatus,
)
from lakeward.model.schema_versions import EvolutionType, SchemaChange, SchemaDefinition
from lakeward.registry import redaction, runs, schema_changes
from lakeward.registry.handle import Registry
from lakeward.registry.positions import check_names
from lakeward.store import dialect, foreign_metadata, markers, schema_versions
from lakeward.store.database import Database

Row = Mapping[str, Any]
BATCH = 200  # rows that one transaction keeps


class TableImport(msgspec.Struct, frozen=True):
    """What became of the rows of one table."""

    table: str
    found: int
    imported: int
    present: int  # came over before, or what is here is newer
    refused: list[str]  # which, and why


def import_metadata(registry: Registry, source_url: str, source_schema: str = "cartridge_warp") -> list[TableImport]:
    """Read the five tables of a PostgreSQL schema, and keep what is not here yet; what became of each table's rows.

    Runs, errors and dead letters are known again by their ids there, versions of schemas by their numbers; a position is
    taken unless the one here is newer. References go with them. A table that is missing there is left out. A row that cannot
    be kept is reported, and the others come over. Nothing is written there.

    Raises:
        InvalidInput: the source is no PostgreSQL database, or has none of these tables.
        RegistryUnavailable: one of the databases does not answer.
    """
    source = Database(source_url)
    try:
        if source.is_sqlite:
            raise InvalidInput(f"{source.shown_url!r} is no PostgreSQL database; write postgresql://user@host/database")
        with source.read() as connection:
            there = foreign_metadata.names(connection, source_schema)
        if not there & _KEEP.keys():
            raise InvalidInput(
                f"the schema {source_schema!r} of {source.shown_url} has none of the tables {', '.join(_KEEP)}; name the schema "
                "that has them with --schema"
            )
        return [_table(registry, source, source_schema, name) for name in _KEEP if name in there]
    finally:
        source.close()


def _table(registry: Registry, source: Database, schema: str, name: str) -> TableImport:
    prefix = f"{source.url.host}/{source.url.database}.{schema}:"
    kept = {True: 0, False: 0}
    refused: list[str] = []
    with source.read() as connection:
        for rows in _batches(foreign_metadata.rows(connection, schema, name)):
            with registry.database.transaction() as target:
                for row in rows:
                    try:
                        kept[_KEEP[name](target, prefix, _plain(row))] += 1
                    except (InvalidInput, ValueError, TypeError, KeyError, sa.exc.IntegrityError) as error:
                        reason = redaction.text(str(error).splitlines()[0][:300])
                        refused.append(f"{row.get('id')}: {reason or type(error).__name__}")
    return TableImport(name, sum(kept.values()) + len(refused), kept[True], kept[False], refused)


def _batches(rows: Iterable[Row]) -> Iterable[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


# Values -------------------------------------------------------------------------------------------------------------------
_DOCUMENTS = ("position_data", "schema_definition", "source_info", "destination_info", "error_details", "record_data")


def _plain(row: Row) -> dict[str, Any]:
    """Documents parsed, no digit lost; times aware (timestamps without a zone there are UTC)."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name in _DOCUMENTS and isinstance(value, str):
            made[name] = json.loads(value, parse_float=_number)
        else:
            made[name] = value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
    return made


def _number(text: str) -> float | Decimal:
    exact = Decimal(text)
    return float(text) if Decimal(repr(float(text))) == exact else exact


def _one_of(kind: type[StrEnum], value: Any, others: Mapping[str, str] | None = None) -> Any:
    """Raises ValueError: it is none of them."""
    text = str(value).lower()
    return kind((others or {}).get(text, text)).value


def _or_default(kind: type[StrEnum], value: Any, default: Any) -> Any:
    try:
        return _one_of(kind, value)
    except ValueError:
        return default


def _time(row: Row, *names: str) -> datetime:
    """The first that is known. Raises KeyError."""
    for name in names:
        if isinstance(row.get(name), datetime):
            found: datetime = row[name]
            return found
    raise KeyError(f"no time: {', '.join(names)}")


def _run(connection: sa.Connection, prefix: str, row: Row, column: str = "sync_run_id") -> int | None:
    key = row.get(column)
    return None if key is None else foreign_metadata.imported_id(connection, "sync_runs", f"{prefix}{key}")


# Tables: each keeps a row, and says whether it was new ----------------------------------------------------------------------
def _sync_run(connection: sa.Connection, prefix: str, row: Row) -> bool:
    key = f"{prefix}{row['id']}"
    if foreign_metadata.imported_id(connection, "sync_runs", key) is not None:
        return False
    check_names(row["schema_name"])
    status = _one_of(SyncStatus, row["status"], {"success": "completed", "error": "failed", "canceled": "cancelled"})
    started = _time(row, "started_at")
    ended = None if status == SyncStatus.RUNNING else max(_time(row, "completed_at", "started_at"), started)
    duration = row.get("duration_ms")
    counts = ("records_processed", "records_inserted", "records_updated", "records_deleted", "bytes_processed")
    values = {
        "schema_name": row["schema_name"],
        "sync_mode": _one_of(SyncMode, row["sync_mode"], {"streaming": "stream", "initial_load": "initial"}),
        "status": status,
        "started_at": started,
        "completed_at": ended,
        "duration_ms": None if ended is None else int(duration or (ended - started).total_seconds() * 1000),
        "last_seen_at": ended or started,
        **{name: int(row.get(name) or 0) for name in counts},
        **{
            name: redaction.storable(row.get(name))
            for name in ("config_hash", "instance_id", "node_id", "error_message")
        },
        **{name: runs.info(row.get(name), name) for name in ("source_info", "destination_info", "error_details")},
        "import_key": key,
    }
    foreign_metadata.insert(connection, "sync_runs", values)
    return True


def _sync_marker(connection: sa.Connection, prefix: str, row: Row) -> bool:
    schema_name, table_name = row["schema_name"], row.get("table_name") or None
    check_names(schema_name, table_name)
    kind = MarkerType(_one_of(MarkerType, row["marker_type"], {"streaming": "stream", "initial_load": "initial"}))
    if not isinstance(row["position_data"], dict):
        raise InvalidInput("position_data is no object")
    changed = _time(row, "last_updated")
    found = markers.load(connection, schema_name, table_name, kind, lock=True)
    if found is not None and found.last_updated >= changed:
        return False
    markers.upsert(
        connection, schema_name, table_name, kind, row["position_data"], changed, _run(connection, prefix, row)
    )
    return True


def _schema_version(connection: sa.Connection, _: str, row: Row) -> bool:
    names = row["schema_name"], row["table_name"]
    check_names(*names)
    version = int(row["version"])
    if schema_versions.load(connection, *names, version) is not None:
        return False
    given = row["schema_definition"]
    definition = SchemaDefinition(given["columns"], given.get("primary_keys") or (), given.get("indexes") or ())
    normal = schema_changes.normal(definition)
    before = schema_versions.load(connection, *names, version - 1)
    kind = EvolutionType(_one_of(EvolutionType, row["evolution_type"], {"modify_type": "modify_column"}))
    changes = schema_changes.diff(before.schema_definition if before else None, normal)
    schema_versions.insert(
        connection,
        {
            "schema_name": names[0],
            "table_name": names[1],
            "version": version,
            "schema_definition": normal,
            "schema_hash": schema_changes.digest(normal),  # by our canonical form, or each would count as changed
            "evolution_type": kind.value,
            "changes": changes if before or kind == EvolutionType.CREATE else [SchemaChange(kind)],
            "previous_version": row.get("previous_version"),
            "registered_at": _registered(connection, row),
        },
    )
    return True


def _registered(connection: sa.Connection, row: Row) -> datetime:
    try:
        return _time(row, "registered_at", "created_at")
    except KeyError:
        return dialect.now(connection)


def _error(connection: sa.Connection, prefix: str, row: Row) -> bool:
    key = f"{prefix}{row['id']}"
    if foreign_metadata.imported_id(connection, "error_log", key) is not None:
        return False
    check_names(row["schema_name"], row.get("table_name") or None)
    occurred = _time(row, "occurred_at")
    status = _or_default(ErrorStatus, row.get("status"), ErrorStatus.OPEN.value)
    is_open = status == ErrorStatus.OPEN
    values = {
        "schema_name": row["schema_name"],
        "table_name": row.get("table_name") or None,
        "sync_run_id": _run(connection, prefix, row),
        "error_type": _or_default(ErrorType, row["error_type"], ErrorType.UNKNOWN.value),
        "error_code": redaction.storable(row.get("error_code")),
        "error_message": redaction.storable(row["error_message"]) or "",
        "error_details": runs.info(row.get("error_details"), "error_details"),
        "stack_trace": redaction.storable(row.get("stack_trace")),
        "record_data": row.get("record_data"),
        "operation_type": _or_default(OperationType, row.get("operation_type"), None),
        "retry_count": int(row.get("retry_count") or 0),
        "max_retries": int(row.get("max_retries") or 0),
        "next_retry_at": row.get("next_retry_at") if is_open else None,
        "status": status,
        "occurred_at": occurred,
        "resolved_at": None if is_open else max(_time(row, "resolved_at", "occurred_at"), occurred),
        "import_key": key,
    }
    foreign_metadata.insert(connection, "error_log", values)
    return True


def _dead_letter(connection: sa.Connection, prefix: str, row: Row) -> bool:
    key = f"{prefix}{row['id']}"
    if foreign_metadata.imported_id(connection, "dead_letter_queue", key) is not None:
        return False
    schema_name, table_name = row["schema_name"], row["table_name"]
    check_names(schema_name, table_name)
    status = _one_of(
        DeadLetterStatus, row.get("status") or "pending", {"processing": "pending", "ignored": "discarded"}
    )
    created = _time(row, "created_at", "first_failed_at", "occurred_at", "last_failed_at")
    source_id = None if row.get("source_record_id") is None else str(row["source_record_id"])
    # A second row of one source record stays apart here, and says in its envelope which it is of.
    taken = source_id is not None and foreign_metadata.has_source_record(connection, schema_name, table_name, source_id)
    error = row.get("error_log_id")
    waits = status == DeadLetterStatus.PENDING
    values = {
        "schema_name": schema_name,
        "table_name": table_name,
        "operation_type": _or_default(OperationType, row.get("operation_type"), OperationType.UPSERT.value),
        "record_data": row["record_data"],
        "envelope": {"source_record_id": source_id} if taken else None,
        "source_record_id": None if taken else source_id,
        "sync_run_id": _run(connection, prefix, row),
        "error_log_id": None
        if error is None
        else foreign_metadata.imported_id(connection, "error_log", f"{prefix}{error}"),
        "error_message": redaction.storable(row.get("error_message")),
        "error_count": max(1, int(row.get("error_count") or 1)),
        "status": status,
        "created_at": created,
        "last_failed_at": max(_time(row, "last_failed_at", "last_error_at", "created_at", "occurred_at"), created),
        "resolved_at": None if waits else max(_time(row, "resolved_at", "created_at", "occurred_at"), created),
        "import_key": key,
    }
    foreign_metadata.insert(connection, "dead_letter_queue", values)
    return True


# In this order: later ones refer to those before.
_KEEP: dict[str, Callable[[sa.Connection, str, Row], bool]] = {
    "sync_runs": _sync_run,
    "sync_markers": _sync_marker,
    "schema_registry": _schema_version,
    "error_log": _error,
    "dead_letter_queue": _dead_letter,
}
