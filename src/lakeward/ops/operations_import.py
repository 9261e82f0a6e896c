"""Operations metadata of a cartridge-warp database, brought over: as often as one likes, each row once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward import validation
from lakeward.batching import batched
from lakeward.db import dialect
from lakeward.db.database import Database
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput, LakewardError
from lakeward.ops import redaction, runs, schema_changes
from lakeward.ops.dead_letters import MAX_SOURCE_ID
from lakeward.ops.positions import check_names
from lakeward.ops.records.operations import (
    DeadLetterStatus,
    ErrorStatus,
    ErrorType,
    MarkerType,
    OperationType,
    SyncMode,
    SyncStatus,
)
from lakeward.ops.records.schema_versions import EvolutionType, SchemaChange, SchemaDefinition
from lakeward.ops.schema_versions import MAX_INT32
from lakeward.ops.sql import foreign_operations, schema_versions
from lakeward.ops.sql import positions as position_store
from lakeward.registry.handle import Registry
from lakeward.validation import MAX_INTEGER

Row = Mapping[str, Any]
BATCH = 200  # rows that one transaction keeps


class TableImport(msgspec.Struct, frozen=True):
    """What became of the rows of one table."""

    table: str
    found: int
    imported: int
    ended: int  # came over before, and have ended there since
    present: int  # came over before, or what is here is newer
    refused: list[str]  # which, and why


def import_operations(registry: Registry, source_url: str, source_schema: str = "cartridge_warp") -> list[TableImport]:
    """Read the five tables of a PostgreSQL schema, and keep what is not here yet; what became of each table's rows.

    Runs, errors and dead letters are known again by their ids there, versions of schemas by their numbers; what has ended
    there since it came over, and still waits here, ends here too. A position is taken unless the one here is newer. References
    go with them. A table that is missing there is left out. A row that cannot be kept is reported, and the others come over.
    Nothing is written there.

    Raises:
        InvalidInput: the source is no PostgreSQL database, or has none of these tables.
        RegistryUnavailable: one of the databases does not answer.
    """
    source = Database(source_url)
    try:
        if source.is_sqlite:
            raise InvalidInput(f"{source.shown_url!r} is no PostgreSQL database; write postgresql://user@host/database")
        with source.read() as connection:
            there = foreign_operations.names(connection, source_schema)
        if not there & _KEEP.keys():
            raise InvalidInput(
                f"the schema {source_schema!r} of {source.shown_url} has none of the tables {', '.join(_KEEP)}; name the schema "
                "that has them with --schema"
            )
        return [_table(registry, source, source_schema, name) for name in _KEEP if name in there]
    finally:
        source.close()


def _table(registry: Registry, source: Database, schema: str, name: str) -> TableImport:
    prefix = f"{source.url.host}:{source.url.port or 5432}/{source.url.database}.{schema}:"
    kept = {"imported": 0, "ended": 0, "present": 0}
    refused: list[str] = []
    seen: set[Any] = set()
    with source.read() as connection:
        for rows in batched(foreign_operations.rows(connection, schema, name), BATCH):
            for row, outcome in zip(rows, _import(registry, name, prefix, rows, seen), strict=True):
                if isinstance(outcome, str):
                    kept[outcome] += 1
                else:
                    refused.append(f"{row.get('id')}: {_reason(outcome)}")
            seen.update(row.get("id") for row in rows)
    return TableImport(name, sum(kept.values()) + len(refused), **kept, refused=refused)


_REFUSALS = (
    *(LakewardError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError),
    *(sa.exc.IntegrityError, sa.exc.DataError),
)


@retried
def _import(
    registry: Registry, name: str, prefix: str, rows: Sequence[Row], before: Collection[Any]
) -> list[str | Exception]:
    """What became of each row: 'imported', 'ended' or 'present', or why it was refused. `before`: ids of earlier rows."""
    seen: set[Any] = set()  # among these rows
    outcomes: list[str | Exception] = []
    with registry.database.transaction() as target:
        for row in rows:
            try:
                _check_id(row, before, seen)
                with target.begin_nested():  # one that is refused undoes nothing else
                    outcomes.append(_KEEP[name](target, prefix, _plain(row)))
            except _REFUSALS as error:
                outcomes.append(error)
    return outcomes


def _reason(error: Exception) -> str:
    if isinstance(error, LakewardError):
        return redaction.text(str(error).splitlines()[0][:300])
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if isinstance(error, sa.exc.IntegrityError):
        return "it contradicts a row that is here"
    if isinstance(error, sa.exc.DataError):
        return "it holds a value that the registry cannot keep"
    return f"it has a value of another kind ({type(error).__name__})"


def _check_id(row: Row, before: Collection[Any], seen: set[Any]) -> None:
    """Rows are known again by their ids."""
    row_id = row.get("id")
    if row_id is None:
        raise InvalidInput("it has no id")
    if row_id in before or row_id in seen:
        raise InvalidInput("another row has this id")
    seen.add(row_id)


# Values -------------------------------------------------------------------------------------------------------------------
_TIMES = (
    *("started_at", "completed_at", "last_updated", "registered_at", "created_at", "occurred_at", "resolved_at"),
    *("next_retry_at", "first_failed_at", "last_failed_at", "last_error_at"),
)
_DOCUMENTS = ("position_data", "schema_definition", "source_info", "destination_info", "error_details", "record_data")


def _plain(row: Row) -> dict[str, Any]:
    """Documents parsed, no digit lost; times aware (timestamps without a zone there are UTC)."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name in _DOCUMENTS and isinstance(value, str):
            made[name] = json.loads(value, parse_float=_number)
        elif name in _TIMES and isinstance(value, str):
            made[name] = _moment(name, value)
        else:
            made[name] = value
    return made


def _moment(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name} {text!r} is no time that can be kept") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _whole(row: Row, name: str, default: int = 0, *, least: int = 0, most: int = MAX_INTEGER) -> int:
    """Numeric columns hold numbers that are none, and some that no bigint is."""
    value = row.get(name)
    return default if value is None else validation.whole(int(value), name, least, most)


def _number(text: str) -> float | Decimal:
    exact = Decimal(text)
    return float(text) if Decimal(repr(float(text))) == exact else exact


def _one_of(kind: type[StrEnum], value: Any, others: Mapping[str, str] | None = None) -> Any:
    """A member of an enumeration by its value. Raises InvalidInput: it is none of them."""
    text = str(value).lower()
    text = (others or {}).get(text, text)
    if text not in {each.value for each in kind}:
        raise InvalidInput(f"{value!r} is none of {', '.join(kind)}")
    return text


def _or_default(kind: type[StrEnum], value: Any, default: Any) -> Any:
    try:
        return _one_of(kind, value)
    except InvalidInput:
        return default


def _time(row: Row, *names: str) -> datetime:
    """The first that is known. Raises InvalidInput: none is."""
    for name in names:
        if isinstance(row.get(name), datetime):
            found: datetime = row[name]
            return found
    raise InvalidInput(f"it has no time: {', '.join(names)}")


def _run(connection: sa.Connection, prefix: str, row: Row, column: str = "sync_run_id") -> int | None:
    return _imported_id(connection, "sync_runs", prefix, row.get(column))


def _imported_id(connection: sa.Connection, name: str, prefix: str, key: Any) -> int | None:
    found = None if key is None else foreign_operations.imported(connection, name, f"{prefix}{key}")
    return None if found is None else found[0]


def _keep(connection: sa.Connection, name: str, key: str, values: dict[str, Any]) -> str:
    """Insert a row; or end the one that came over before, where it waits still."""
    found = foreign_operations.imported(connection, name, key)
    if found is None:
        foreign_operations.insert(connection, name, {**values, "import_key": key})
        return "imported"
    row_id, status = found
    if status not in _WAITING or values["status"] in _WAITING:
        return "present"
    foreign_operations.update(connection, name, row_id, values)
    return "ended"


# What nobody has worked on here; a claimed dead letter is its worker's.
_WAITING = frozenset({SyncStatus.RUNNING.value, ErrorStatus.OPEN.value, DeadLetterStatus.PENDING.value})


# Tables: each keeps a row, and says what became of it ----------------------------------------------------------------------
def _sync_run(connection: sa.Connection, prefix: str, row: Row) -> str:
    check_names(row["schema_name"])
    status = _one_of(SyncStatus, row["status"], {"success": "completed", "error": "failed", "canceled": "cancelled"})
    started = _time(row, "started_at")
    ended = None if status == SyncStatus.RUNNING else max(_time(row, "completed_at", "started_at"), started)
    counts = ("records_processed", "records_inserted", "records_updated", "records_deleted", "bytes_processed")
    values = {
        "schema_name": row["schema_name"],
        "sync_mode": _one_of(SyncMode, row["sync_mode"], {"streaming": "stream", "initial_load": "initial"}),
        "status": status,
        "started_at": started,
        "completed_at": ended,
        "duration_ms": None
        if ended is None
        else _whole(row, "duration_ms", int((ended - started).total_seconds() * 1000)),
        "last_seen_at": ended or started,
        **{name: _whole(row, name) for name in counts},
        **{
            name: redaction.storable(row.get(name))
            for name in ("config_hash", "instance_id", "node_id", "error_message")
        },
        **{name: runs.info(row.get(name), name) for name in ("source_info", "destination_info", "error_details")},
    }
    return _keep(connection, "sync_runs", f"{prefix}{row['id']}", values)


def _sync_marker(connection: sa.Connection, prefix: str, row: Row) -> str:
    schema_name, table_name = row["schema_name"], row.get("table_name") or None
    check_names(schema_name, table_name)
    kind = MarkerType(_one_of(MarkerType, row["marker_type"], {"streaming": "stream", "initial_load": "initial"}))
    if not isinstance(row["position_data"], dict):
        raise InvalidInput("position_data is no object")
    changed = _time(row, "last_updated")
    found = position_store.load(connection, schema_name, table_name, kind, lock=True)
    if found is not None and found.last_updated >= changed:
        return "present"
    position_store.upsert(
        connection, schema_name, table_name, kind, row["position_data"], changed, _run(connection, prefix, row)
    )
    return "imported"


def _schema_version(connection: sa.Connection, _: str, row: Row) -> str:
    names = row["schema_name"], row["table_name"]
    check_names(*names)
    version = validation.whole(row["version"], "version", 1, MAX_INT32)
    given = row["schema_definition"]
    if not isinstance(given, dict):
        raise InvalidInput("schema_definition is no object")
    definition = SchemaDefinition(given["columns"], given.get("primary_keys") or (), given.get("indexes") or ())
    normal = schema_changes.normal(definition)
    digest = schema_changes.digest(normal)  # by our canonical form, or each would count as changed
    found = schema_versions.load(connection, *names, version)
    if found is not None and found.schema_hash != digest:
        raise InvalidInput(f"version {version} of {names[0]}.{names[1]} is here with another definition")
    if found is not None:
        return "present"
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
            "schema_hash": digest,
            "evolution_type": kind.value,
            "changes": changes if before or kind == EvolutionType.CREATE else [SchemaChange(kind)],
            "previous_version": validation.whole_or_none(row.get("previous_version"), "previous_version", 0, MAX_INT32),
            "registered_at": _registered(connection, row),
        },
    )
    return "imported"


def _registered(connection: sa.Connection, row: Row) -> datetime:
    try:
        return _time(row, "registered_at", "created_at")
    except InvalidInput:
        return dialect.now(connection)


def _error(connection: sa.Connection, prefix: str, row: Row) -> str:
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
        "retry_count": _whole(row, "retry_count", most=MAX_INT32),
        "max_retries": _whole(row, "max_retries", most=MAX_INT32),
        "next_retry_at": row.get("next_retry_at") if is_open else None,
        "status": status,
        "occurred_at": occurred,
        "resolved_at": None if is_open else max(_time(row, "resolved_at", "occurred_at"), occurred),
    }
    return _keep(connection, "error_log", f"{prefix}{row['id']}", values)


def _dead_letter(connection: sa.Connection, prefix: str, row: Row) -> str:
    key = f"{prefix}{row['id']}"
    schema_name, table_name = row["schema_name"], row["table_name"]
    check_names(schema_name, table_name)
    if row.get("record_data") is None:
        raise InvalidInput("record_data is null")
    status = _one_of(
        DeadLetterStatus, row.get("status") or "pending", {"processing": "pending", "ignored": "discarded"}
    )
    created = _time(row, "created_at", "first_failed_at", "occurred_at", "last_failed_at")
    source_id = str(row["source_record_id"]) if row.get("source_record_id") not in (None, "") else None
    # A second row of one source record stays apart here, as does one whose id no index holds; its envelope has the id.
    apart = source_id is not None and (
        len(source_id.encode()) > MAX_SOURCE_ID
        or foreign_operations.has_source_record(connection, schema_name, table_name, source_id, but=key)
    )
    waits = status == DeadLetterStatus.PENDING
    values = {
        "schema_name": schema_name,
        "table_name": table_name,
        "operation_type": _or_default(OperationType, row.get("operation_type"), OperationType.UPSERT.value),
        "record_data": row["record_data"],
        "envelope": {"source_record_id": source_id} if apart else None,
        "source_record_id": None if apart else source_id,
        "sync_run_id": _run(connection, prefix, row),
        "error_log_id": _imported_id(connection, "error_log", prefix, row.get("error_log_id")),
        "error_message": redaction.storable(row.get("error_message")),
        "error_count": max(1, _whole(row, "error_count", 1, most=MAX_INT32)),
        "status": status,
        "created_at": created,
        "last_failed_at": max(_time(row, "last_failed_at", "last_error_at", "created_at", "occurred_at"), created),
        "resolved_at": None if waits else max(_time(row, "resolved_at", "created_at", "occurred_at"), created),
    }
    return _keep(connection, "dead_letter_queue", key, values)


# In this order: later ones refer to those before.
_KEEP: dict[str, Callable[[sa.Connection, str, Row], str]] = {
    "sync_runs": _sync_run,
    "sync_markers": _sync_marker,
    "schema_registry": _schema_version,
    "error_log": _error,
    "dead_letter_queue": _dead_letter,
}
