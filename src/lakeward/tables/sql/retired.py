from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.conditions import equal
from lakeward.db.dialect import begins, in_integers, in_texts
from lakeward.db.rows import columns, records
from lakeward.db.schema import retired_files, table_files, table_snapshots
from lakeward.log.records import Topic
from lakeward.tables.records.files import RetiredFile
from lakeward.tables.records.tables import Table

_c = retired_files.c
_SELECT = sa.select(*columns(retired_files, RetiredFile))
METADATA_KINDS = ("metadata", "manifest_list", "manifest")
_REMOVAL_PENDING = sa.and_(_c.snapshot_id.is_not(None), _c.removed_by.is_(None))


def insert(
    connection: sa.Connection,
    table_id: int,
    objects: Iterable[Mapping[str, Any]],
    *,
    kind: str,
    reason: str,
    now: datetime,
    expires_at: datetime,
) -> None:
    """Send objects of a table to quarantine: of each its `file_path`, and what else it has of its own. All have the same keys."""
    common = {"table_id": table_id, "kind": kind, "reason": reason, "retired_at": now, "expires_at": expires_at}
    rows = [{**common, "file_size": 0, **each} for each in objects]
    if rows:
        connection.execute(retired_files.insert(), rows)


def insert_selected(
    connection: sa.Connection,
    columns: Mapping[str, sa.ColumnElement[Any]],
    chosen: sa.ColumnElement[bool],
    *,
    kind: str,
    reason: str,
    now: datetime,
    expires_at: datetime,
) -> int:
    """As `insert`, of what rows of another table name, in one statement however many there are; how many were."""
    common = {"kind": kind, "reason": reason, "retired_at": now, "expires_at": expires_at}
    values = {**columns, **{name: sa.literal(value, _c[name].type) for name, value in common.items()}}
    source = sa.select(*values.values()).where(chosen)
    return connection.execute(retired_files.insert().from_select(list(values), source)).rowcount


def removals_pending(connection: sa.Connection, table_id: int) -> list[RetiredFile]:
    """Files that left the table but that its current snapshot still lists."""
    query = _SELECT.where(_c.table_id == table_id, _REMOVAL_PENDING).order_by(_c.retired_id)
    return records(RetiredFile, connection.execute(query))


def removal_ids_pending(connection: sa.Connection, table_id: int) -> list[int]:
    """The retired_id of those that `removals_pending` gives."""
    return list(connection.execute(sa.select(_c.retired_id).where(_c.table_id == table_id, _REMOVAL_PENDING)).scalars())


def count_removed(connection: sa.Connection, retired_ids: Iterable[int]) -> int:
    """How many of some files a snapshot has removed."""
    query = sa.select(sa.func.count()).where(in_integers(connection, _c.retired_id, retired_ids))
    return int(connection.execute(query.where(_c.removed_by.is_not(None))).scalar_one())


def has_removals_pending(connection: sa.Connection, table_id: int) -> bool:
    query = sa.select(_c.retired_id).where(_c.table_id == table_id, _REMOVAL_PENDING).limit(1)
    return connection.execute(query).first() is not None


def mark_removed(connection: sa.Connection, retired_ids: Iterable[int], snapshot_id: int, sequence_number: int) -> int:
    chosen = (in_integers(connection, _c.retired_id, retired_ids), _c.removed_by.is_(None))
    lock_order.rows(connection, _c.retired_id, *chosen)
    change = retired_files.update().where(*chosen)
    return connection.execute(change.values(removed_by=snapshot_id, removed_sequence=sequence_number)).rowcount


def mark_listed(connection: sa.Connection, retired_id: int, values: Mapping[str, Any]) -> None:
    """A file that left while it was pending is part of a snapshot all the same: its removal is pending now."""
    connection.execute(retired_files.update().where(_c.retired_id == retired_id).values(**values))


def of_table(connection: sa.Connection, table_id: int) -> list[RetiredFile]:
    return records(RetiredFile, connection.execute(_SELECT.where(_c.table_id == table_id).order_by(_c.retired_id)))


def by_paths(connection: sa.Connection, paths: Iterable[str]) -> list[RetiredFile]:
    return records(RetiredFile, connection.execute(_SELECT.where(in_texts(connection, _c.file_path, paths))))


def any_of(connection: sa.Connection, owner: Table | Topic) -> bool:
    is_owners = _c.topic_id == owner.topic_id if isinstance(owner, Topic) else _c.table_id == owner.table_id
    return connection.execute(sa.select(_c.retired_id).where(is_owners).limit(1)).first() is not None


def reachable() -> sa.ColumnElement[bool]:
    """A retained snapshot lists the file: one from the snapshot that added it on, and before the one that removed it."""
    s = table_snapshots.c
    return (
        sa.exists()
        .where(
            s.table_id == _c.table_id,
            s.expired_at.is_(None),
            s.sequence_number >= sa.func.coalesce(_c.sequence_number, 0),
            s.sequence_number < _c.removed_sequence,
        )
        .correlate(retired_files)
    )


def hasten(connection: sa.Connection, below: str, keep: int, before: datetime, now: datetime, longest: datetime) -> int:
    """End the time of superseded metadata that is not among the newest `keep` objects of its table, and left before then.

    Returns how many that were. `longest`: until when any of it waits.
    """
    number = sa.func.row_number().over(partition_by=_c.table_id, order_by=_c.retired_id.desc()).label("number")
    waiting = sa.select(_c.retired_id, _c.retired_at, number).where(
        _c.expires_at > now, _c.expires_at <= longest, _c.kind.in_(METADATA_KINDS), begins(_c.file_path, below)
    )
    found = waiting.subquery()
    old = sa.select(found.c.retired_id).where(found.c.number > keep, found.c.retired_at <= before)
    ids = list(connection.execute(old).scalars())
    if not ids:
        return 0
    chosen = in_integers(connection, _c.retired_id, ids)
    lock_order.rows(connection, _c.retired_id, chosen)
    return connection.execute(retired_files.update().where(chosen).values(expires_at=now)).rowcount


def ended(
    connection: sa.Connection,
    below: str,
    now: datetime,
    limit: int,
    table_id: int | None = None,
    kinds: Sequence[str] = (),
) -> list[RetiredFile]:
    """Files below a location whose quarantine is over: its time has passed and no retained snapshot reaches them (also
    those marked so). `kinds`: of some kinds alone. Their rows are locked; those that others have locked, such as a rollback, are
    left out.
    """
    query = _SELECT.where(_is_over(below, now), equal(_c.table_id, table_id))
    if kinds:
        query = query.where(_c.kind.in_(kinds))
    query = query.order_by(_c.expires_at, _c.retired_id).limit(limit)
    return records(
        RetiredFile, connection.execute(query.with_for_update(of=retired_files, key_share=True, skip_locked=True))
    )


def ended_size(connection: sa.Connection, below: str, now: datetime) -> tuple[int, int]:
    """How many files `ended` would give without a limit, and their bytes."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_c.file_size), 0)).where(_is_over(below, now))
    count, size = connection.execute(query).one()
    return int(count), int(size)


def _is_over(below: str, now: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(_c.expires_at <= now, sa.not_(_REMOVAL_PENDING), sa.not_(reachable()), begins(_c.file_path, below))


def keep_until(connection: sa.Connection, table_id: int, until: datetime) -> int:
    """What a retained snapshot reaches now stays until then at least. Returns for how many that is longer."""
    chosen = (_c.table_id == table_id, _c.expires_at < until, reachable())
    lock_order.rows(connection, _c.retired_id, *chosen)
    change = retired_files.update().where(*chosen)
    return connection.execute(change.values(expires_at=until)).rowcount


def mark_ended(connection: sa.Connection, retired_ids: Iterable[int], now: datetime) -> int:
    change = retired_files.update().where(in_integers(connection, _c.retired_id, retired_ids), _c.ended_at.is_(None))
    return connection.execute(change.values(ended_at=now).execution_options(**lock_order.HELD)).rowcount


def delete_ended(connection: sa.Connection, retired_ids: Iterable[int]) -> int:
    """Those whose objects are gone."""
    return _delete(connection, in_integers(connection, _c.retired_id, retired_ids))


def take_back(connection: sa.Connection, retired_ids: Iterable[int]) -> int:
    """Out of quarantine, before that has ended; how many were there still."""
    return _delete(connection, in_integers(connection, _c.retired_id, retired_ids), _c.ended_at.is_(None))


def _delete(connection: sa.Connection, *chosen: sa.ColumnElement[bool]) -> int:
    lock_order.rows(connection, _c.retired_id, *chosen)
    return connection.execute(retired_files.delete().where(*chosen)).rowcount


def expire_table(connection: sa.Connection, table_id: int, expires_at: datetime, removed_by: int) -> None:
    """A dropped table's files: none is listed any more, and all go at `expires_at` at the latest."""
    lock_order.rows(connection, _c.retired_id, _c.table_id == table_id)
    own = retired_files.update().where(_c.table_id == table_id)
    connection.execute(own.where(_REMOVAL_PENDING).values(removed_by=removed_by))
    connection.execute(own.where(_c.expires_at > expires_at).values(expires_at=expires_at))


def retire_all(
    connection: sa.Connection, table_id: int, *, reason: str, now: datetime, expires_at: datetime, removed_by: int
) -> int:
    """Move every file of a table to quarantine in two statements, however many there are."""
    lock_order.watched(connection, table_id)
    f = table_files.c
    names = ("table_id", "file_path", "file_size", "sequence_number", "snapshot_id")
    found = {**{name: f[name] for name in names}, "removed_by": sa.literal(removed_by, _c.removed_by.type)}
    is_its = f.table_id == table_id
    count = insert_selected(connection, found, is_its, kind="data", reason=reason, now=now, expires_at=expires_at)
    connection.execute(table_files.delete().where(is_its))
    return count
