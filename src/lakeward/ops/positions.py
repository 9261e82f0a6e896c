"""Where syncs stand: positions of streams, timestamps of batches, marks of initial loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward import lossless_json, validation
from lakeward.db import dialect
from lakeward.db.database import Database
from lakeward.db.retry import retried
from lakeward.errors import InvalidInput, PositionConflict, SyncRunNotFound
from lakeward.names import check_level
from lakeward.ops.records.operations import Document, MarkerType, SyncMarker
from lakeward.ops.sql import positions as position_store
from lakeward.ops.sql import runs
from lakeward.registry.handle import Registry


class _Anything:
    """As `expected`: whatever is there."""

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING = _Anything()
TIMESTAMP = "timestamp"  # the key of a batch's position


@contextmanager
def joined(database: Database, connection: sa.Connection | None) -> Iterator[sa.Connection]:
    """The caller's transaction where there is one, else one of our own."""
    if connection is None:
        with database.transaction() as own:
            yield own
        return
    with database.translated():
        if connection.engine.dialect is not database.engine.dialect:
            dialect.see_metadata(connection, database.metadata_schema)
        yield connection


def check_names(schema_name: str, table_name: str | None = None) -> None:
    """Raises InvalidName."""
    check_level(schema_name, "schema_name")
    if table_name is not None:
        check_level(table_name, "table_name")


@retried
def update(
    registry: Registry,
    marker_type: MarkerType,
    schema_name: str,
    position: Mapping[str, Any],
    table_name: str | None = None,
    sync_run_id: int | None = None,
    *,
    expected: Mapping[str, Any] | _Anything | None = ANYTHING,
    connection: sa.Connection | None = None,
) -> SyncMarker:
    """Set where a sync goes on: {"lsn": "0/16B3748"} of a stream, {"state": "completed", "chunk": 7} of an initial load.

    Args:
        position: an object of values that lossless_json.py keeps; it comes back as it is.
        expected: the position that must be there now, None for none yet.
        connection: the caller's transaction, in which the position then commits or not.

    Raises:
        PositionConflict: another position is there than was expected.
        SyncRunNotFound, InvalidName, InvalidInput.
    """
    check_names(schema_name, table_name)
    if not isinstance(position, Mapping):
        raise InvalidInput(f"position {str(position)[:200]!r} is no object; give one such as {{'lsn': '0/16B3748'}}")
    lossless_json.dumps(position, "position")  # refused before anything is written
    validation.whole_or_none(sync_run_id, "sync_run_id")
    if connection is None and isinstance(expected, _Anything):
        made = _at_once(registry, marker_type, schema_name, position, table_name, sync_run_id)
        if made is not None:
            return made
    with joined(registry.database, connection) as joint:
        # A statement that PostgreSQL refuses would end the caller's transaction, with all that is in it.
        if connection is not None and sync_run_id is not None and runs.load(joint, sync_run_id) is None:
            raise unknown_run(sync_run_id)
        try:
            return _write(joint, marker_type, schema_name, position, table_name, sync_run_id, expected)
        except sa.exc.IntegrityError as error:
            raise unknown_run(sync_run_id) from error


def _at_once(
    registry: Registry,
    kind: MarkerType,
    schema_name: str,
    position: Mapping[str, Any],
    table_name: str | None,
    sync_run_id: int | None,
) -> SyncMarker | None:
    """None where a transaction must do it, or tell what is wrong."""
    parameters = {
        "schema_name": schema_name,
        "table_name": table_name,
        "marker_type": kind.value,
        "position_data": position,
        "sync_run_id": sync_run_id,
    }
    written = registry.database.lookups.write(position_store.upsert_at_once(), parameters)
    return None if written is None else position_store.as_written(parameters, written)


def unknown_run(sync_run_id: int | None) -> SyncRunNotFound:
    return SyncRunNotFound(f"no sync run {sync_run_id}; `lakeward runs list` shows those there are")


def _write(
    connection: sa.Connection,
    kind: MarkerType,
    schema_name: str,
    position: Mapping[str, Any],
    table_name: str | None,
    sync_run_id: int | None,
    expected: Mapping[str, Any] | _Anything | None,
) -> SyncMarker:
    now = dialect.now(connection)
    if isinstance(expected, _Anything):
        return position_store.upsert(connection, schema_name, table_name, kind, position, now, sync_run_id)
    if expected is None:
        made = position_store.insert(connection, schema_name, table_name, kind, position, now, sync_run_id)
        if made is None:
            raise _conflict(connection, kind, schema_name, table_name, expected)
        return made
    found = position_store.load(connection, schema_name, table_name, kind, lock=True)
    if found is None or not lossless_json.same(found.position_data, expected):
        raise _conflict(connection, kind, schema_name, table_name, expected)
    return position_store.upsert(connection, schema_name, table_name, kind, position, now, sync_run_id)


def _conflict(
    connection: sa.Connection, kind: MarkerType, schema_name: str, table_name: str | None, expected: Any
) -> PositionConflict:
    found = position_store.load(connection, schema_name, table_name, kind)
    there = "none" if found is None else str(found.position_data)[:300]
    return PositionConflict(
        f"the {kind.value} position of {schema_name}{'' if table_name is None else '.' + table_name} is {there}, not "
        f"{str(expected)[:300]}; somebody else has moved it: read it again and go on from there"
    )


def get(
    registry: Registry, marker_type: MarkerType, schema_name: str, table_name: str | None = None
) -> Document | None:
    """A position as it was written, the last that has committed; None if there is none.

    On SQLite one that this thread has read before is remembered until anything is committed to the registry.
    """
    if not isinstance(schema_name, str) or not (table_name is None or isinstance(table_name, str)):
        check_names(schema_name, table_name)  # memory takes only what can be hashed
    lookups = registry.database.lookups
    memory = lookups.memory()
    key = ("position", schema_name, table_name, marker_type._value_)  # an enum's own hash is slow
    if memory is not None and (known := memory.get(key)) is not None:
        return known[0].copy() if known[1] else lossless_json.loads(lossless_json.dumps(known[0]))  # type: ignore[no-any-return]
    check_names(schema_name, table_name)
    parameters = {"schema_name": schema_name, "table_key": table_name or "", "marker_type": marker_type.value}
    row = lookups.one(position_store.POSITION, parameters)
    if row is None:
        return None
    position: Document = row["position_data"]
    if memory is not None:
        # A caller may change what it gets: a flat object is copied, others are made anew.
        flat = not any(isinstance(value, (dict, list, set, bytearray, tuple)) for value in position.values())
        memory[key] = (position, flat)
        return position.copy() if flat else lossless_json.loads(lossless_json.dumps(position))
    return position


def load_in(
    connection: sa.Connection, marker_type: MarkerType, schema_name: str, table_name: str | None = None
) -> SyncMarker | None:
    """As the transaction sees it, its own writes too."""
    return position_store.load(connection, schema_name, table_name, marker_type)


def list_markers(
    registry: Registry, schema_name: str | None = None, marker_type: MarkerType | None = None
) -> list[SyncMarker]:
    """By id. Raises InvalidName, InvalidInput."""
    validation.text_or_none(schema_name, "schema_name")
    kind = validation.one_of_or_none(MarkerType, marker_type, "marker_type")
    with registry.database.read() as connection:
        return position_store.page(connection, schema_name, kind)


@retried
def delete(registry: Registry, schema_name: str, marker_type: MarkerType, table_name: str | None = None) -> bool:
    """Forget a position, so that the sync starts anew; whether there was one. Raises InvalidName, InvalidInput."""
    check_names(schema_name, table_name)
    kind = validation.one_of(MarkerType, marker_type, "marker_type")
    with registry.database.transaction() as connection:
        return position_store.delete(connection, schema_name, table_name, kind)


def update_timestamp(
    registry: Registry,
    schema_name: str,
    timestamp: datetime,
    table_name: str | None = None,
    sync_run_id: int | None = None,
    *,
    connection: sa.Connection | None = None,
) -> SyncMarker:
    """Set the time up to which batches have read. Raises SyncRunNotFound, InvalidName, InvalidInput."""
    if not isinstance(timestamp, datetime):
        raise InvalidInput(f"timestamp {timestamp!r} is no datetime")
    position = {TIMESTAMP: timestamp}
    return update(registry, MarkerType.BATCH, schema_name, position, table_name, sync_run_id, connection=connection)


def get_timestamp(registry: Registry, schema_name: str, table_name: str | None = None) -> datetime | None:
    """The time up to which batches have read, as it was set; None if there is none.

    Raises InvalidInput: a position that was set otherwise holds no time there.
    """
    found = get(registry, MarkerType.BATCH, schema_name, table_name)
    value = None if found is None else found.get(TIMESTAMP)
    if value is None or isinstance(value, datetime):
        return value
    # Written as JSON has it: on the command line, or by the program that it was imported from.
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        of = schema_name if table_name is None else f"{schema_name}.{table_name}"
        raise InvalidInput(
            f"the batch position of {of} has the timestamp {value!r}, which is no time; set it anew with update_batch_timestamp, "
            'or `lakeward positions set ... --type batch \'{"timestamp": "2026-01-02T03:04:05Z"}\'`'
        ) from None
