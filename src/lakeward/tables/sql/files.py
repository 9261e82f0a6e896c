from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.dialect import in_integers, in_texts
from lakeward.db.pipeline import Refusal
from lakeward.db.prepared import Prepared
from lakeward.db.rows import columns, record, records
from lakeward.db.schema import PENDING, table_files
from lakeward.errors import says
from lakeward.tables.records.files import FileStatistics, RegisteredFile

T = TypeVar("T")


def is_duplicate(error: sa.exc.DBAPIError) -> bool:
    """Whether a file was refused because it is registered already: PostgreSQL names the index, SQLite the columns."""
    return isinstance(error, sa.exc.IntegrityError) and says(error, "uq_table_files_file_path", "table_files.file_path")


_c = table_files.c
_SELECT = sa.select(*columns(table_files, RegisteredFile))
_LIVE = _c.set_aside_reason.is_(None)
_LIVE_AFTER = _SELECT.where(
    _c.table_id == sa.bindparam("table_id"), _c.file_id > sa.bindparam("after"), _LIVE
).order_by(_c.file_id)
_INSERT = Prepared(table_files.insert())
_NOT_IN_A_SNAPSHOT = sa.and_(_c.snapshot_id.is_(None), _LIVE)


def insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]], refusal: Refusal | None = None) -> None:
    """`refusal` as for `Prepared.insert`."""
    lock_order.watched(connection, *{row["table_id"] for row in rows})
    _INSERT.insert(connection, rows, refusal)


def live(connection: sa.Connection, table_id: int, after: int = 0, limit: int | None = None) -> list[RegisteredFile]:
    """Live files by file_id, those after `after`."""
    found = connection.execute(_LIVE_AFTER.limit(limit), {"table_id": table_id, "after": after})
    return records(RegisteredFile, found)


def live_in_pages(connection: sa.Connection, table_id: int, size: int) -> Iterator[RegisteredFile]:
    """Live files by file_id, so many at a time: a driver may hold all rows of a query at once."""
    after: int | None = 0
    while after is not None:
        page = live(connection, table_id, after, size)
        yield from page
        after = page[-1].file_id if len(page) == size else None


def live_by_ids(connection: sa.Connection, table_id: int, file_ids: Iterable[int]) -> list[RegisteredFile]:
    """Those of some files that are live."""
    query = _SELECT.where(_c.table_id == table_id, in_integers(connection, _c.file_id, file_ids), _LIVE)
    return records(RegisteredFile, connection.execute(query))


def statistics_after(
    connection: sa.Connection, table_id: int, after: int, limit: int
) -> list[tuple[int, FileStatistics]]:
    """(file_id, statistics) of the files after `after`, by file_id; those that are set aside too."""
    query = sa.select(_c.file_id, _c.statistics).where(_c.table_id == table_id, _c.file_id > after)
    return [tuple(row) for row in connection.execute(query.order_by(_c.file_id).limit(limit))]


def statistics_between(
    connection: sa.Connection, table_id: int, first: int, last: int
) -> list[tuple[int, FileStatistics]]:
    """(file_id, statistics) of the files from `first` to `last`; of those that are set aside too."""
    query = sa.select(_c.file_id, _c.statistics).where(_c.table_id == table_id, _c.file_id.between(first, last))
    return [tuple(row) for row in connection.execute(query)]


def ids_after(connection: sa.Connection, table_id: int, after: int, limit: int) -> list[int]:
    """The first ids after `after`, ascending."""
    query = sa.select(_c.file_id).where(_c.table_id == table_id, _c.file_id > after)
    return list(connection.execute(query.order_by(_c.file_id).limit(limit)).scalars())


def count_after(connection: sa.Connection, table_id: int, after: int, most: int) -> int:
    """How many files a table has after `after`, counted up to `most`."""
    some = sa.select(_c.file_id).where(_c.table_id == table_id, _c.file_id > after).limit(most)
    return int(connection.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one())


def ids_between(connection: sa.Connection, table_id: int, after: int, last: int) -> list[int]:
    """The ids of a table's files after `after` and up to `last`."""
    query = sa.select(_c.file_id).where(_c.table_id == table_id, _c.file_id > after, _c.file_id <= last)
    return list(connection.execute(query).scalars())


def ids_in_partitions(
    connection: sa.Connection, table_id: int, spec_id: int, partition_keys: Iterable[str]
) -> list[int]:
    """The ids of the files in some partitions of a spec; of those that are set aside too."""
    query = sa.select(_c.file_id).where(_c.table_id == table_id, _c.spec_id == spec_id)
    return list(connection.execute(query.where(in_texts(connection, _c.partition_key, partition_keys))).scalars())


def set_aside(connection: sa.Connection, table_id: int) -> list[RegisteredFile]:
    query = _SELECT.where(_c.table_id == table_id, _c.set_aside_reason.is_not(None)).order_by(_c.file_id)
    return records(RegisteredFile, connection.execute(query))


def pending(connection: sa.Connection, table_id: int) -> list[RegisteredFile]:
    """Files that wait for their first snapshot, by file_id. JSON landing files are no part of a snapshot."""
    query = _SELECT.where(_c.table_id == table_id, PENDING).order_by(_c.file_id)
    return records(RegisteredFile, connection.execute(query))


def pending_sizes(connection: sa.Connection, table_id: int) -> list[sa.Row[int, int, int, datetime]]:
    """(file_id, file_size, row_count, registered_at) of the files that `pending` gives."""
    query = sa.select(_c.file_id, _c.file_size, _c.row_count, _c.registered_at)
    return list(connection.execute(query.where(_c.table_id == table_id, PENDING).order_by(_c.file_id)))


def pending_ids(connection: sa.Connection, table_id: int) -> list[int]:
    """The file_id of those that `pending` gives."""
    return list(connection.execute(sa.select(_c.file_id).where(_c.table_id == table_id, PENDING)).scalars())


def count_settled(connection: sa.Connection, table_id: int, file_ids: Iterable[int]) -> int:
    """How many of some files are part of the table, and of a snapshot or set aside."""
    query = sa.select(sa.func.count()).where(
        _c.table_id == table_id,
        in_integers(connection, _c.file_id, file_ids),
        sa.or_(_c.snapshot_id.is_not(None), _c.set_aside_reason.is_not(None)),
    )
    return int(connection.execute(query).scalar_one())


def count_pending(connection: sa.Connection, table_id: int) -> int:
    query = sa.select(sa.func.count()).where(_c.table_id == table_id, PENDING)
    return int(connection.execute(query).scalar_one())


def count_committed(connection: sa.Connection, table_id: int) -> int:
    """Data files that are part of the current snapshot."""
    query = sa.select(sa.func.count()).where(_c.table_id == table_id, _c.snapshot_id.is_not(None), _c.content == 0)
    return int(connection.execute(query).scalar_one())


def in_partition(connection: sa.Connection, table_id: int, spec_id: int, partition_key: str) -> list[RegisteredFile]:
    query = _SELECT.where(
        _c.table_id == table_id, _c.spec_id == spec_id, _c.partition_key == partition_key, _LIVE
    ).order_by(_c.file_id)
    return records(RegisteredFile, connection.execute(query))


def small_in_partition(
    connection: sa.Connection, kind: type[T], table_id: int, spec_id: int, partition_key: str, below: int
) -> list[T]:
    """The live data files of a partition that have fewer bytes than `below`, by file_id: what a record has of their rows."""
    query = sa.select(*columns(table_files, kind)).where(
        _c.table_id == table_id, _c.spec_id == spec_id, _c.partition_key == partition_key, _LIVE
    )
    query = query.where(_c.content == 0, _c.file_size < below).order_by(_c.file_id)
    return records(kind, connection.execute(query))


def has_deletes(connection: sa.Connection, table_id: int, spec_id: int, partition_key: str) -> bool:
    """Whether a partition has files of deletes."""
    query = sa.select(_c.file_id).where(
        _c.table_id == table_id, _c.spec_id == spec_id, _c.partition_key == partition_key, _c.content != 0
    )
    return connection.execute(query.limit(1)).first() is not None


def by_ids(connection: sa.Connection, table_id: int, file_ids: Iterable[int]) -> list[RegisteredFile]:
    query = _SELECT.where(_c.table_id == table_id, in_integers(connection, _c.file_id, file_ids))
    return records(RegisteredFile, connection.execute(query))


def by_paths(connection: sa.Connection, paths: Iterable[str]) -> list[RegisteredFile]:
    return records(RegisteredFile, connection.execute(_SELECT.where(in_texts(connection, _c.file_path, paths))))


def written_under(
    connection: sa.Connection, table_id: int, schema_ids: Iterable[int], spec_ids: Iterable[int]
) -> RegisteredFile | None:
    """One file, live or set aside, that was written under one of the schemas or one of the specs; None if there is none."""
    under = sa.or_(_c.schema_id.in_(list(schema_ids)), _c.spec_id.in_(list(spec_ids)))
    return record(
        RegisteredFile, connection.execute(_SELECT.where(_c.table_id == table_id, under).limit(1)).one_or_none()
    )


def mark_committed(
    connection: sa.Connection, table_id: int, file_ids: Iterable[int], snapshot_id: int, sequence_number: int
) -> int:
    """Pending files among `file_ids` become part of a snapshot. Returns how many were."""
    lock_order.watched(connection, table_id)
    change = table_files.update().where(
        _c.table_id == table_id, in_integers(connection, _c.file_id, file_ids), _NOT_IN_A_SNAPSHOT
    )
    return connection.execute(change.values(snapshot_id=snapshot_id, sequence_number=sequence_number)).rowcount


def mark_committed_with_row_ids(
    connection: sa.Connection,
    table_id: int,
    first_row_ids: Mapping[int, int],
    snapshot_id: int,
    sequence_number: int,
) -> int:
    """As `mark_committed`, for format version 3: by file id, the id of each file's first row."""
    lock_order.watched(connection, table_id)
    change = table_files.update().where(_c.table_id == table_id, _c.file_id == sa.bindparam("id"), _NOT_IN_A_SNAPSHOT)
    values = {"snapshot_id": snapshot_id, "sequence_number": sequence_number, "first_row_id": sa.bindparam("first")}
    rows = [{"id": file_id, "first": first} for file_id, first in first_row_ids.items()]
    return connection.execute(change.values(values), rows).rowcount


def mark_set_aside(connection: sa.Connection, table_id: int, file_id: int, reason: str) -> int:
    lock_order.watched(connection, table_id)
    change = table_files.update().where(_c.table_id == table_id, _c.file_id == file_id, _NOT_IN_A_SNAPSHOT)
    return connection.execute(change.values(set_aside_reason=reason)).rowcount


def clear_set_aside(connection: sa.Connection, table_id: int) -> int:
    """Files that were set aside are live again, and pending. Returns how many were."""
    lock_order.watched(connection, table_id)
    change = table_files.update().where(_c.table_id == table_id, _c.set_aside_reason.is_not(None))
    return connection.execute(change.values(set_aside_reason=None)).rowcount


def delete(connection: sa.Connection, table_id: int, file_ids: Iterable[int]) -> int:
    lock_order.watched(connection, table_id)
    change = table_files.delete().where(_c.table_id == table_id, in_integers(connection, _c.file_id, file_ids))
    return connection.execute(change).rowcount


def fill_checksum(connection: sa.Connection, table_id: int, file_id: int, checksum: str) -> bool:
    """Set a checksum that is missing; false if the file has one, or has left the table."""
    lock_order.watched(connection, table_id)
    change = table_files.update().where(_c.table_id == table_id, _c.file_id == file_id, _c.checksum.is_(None))
    return connection.execute(change.values(checksum=checksum)).rowcount == 1
