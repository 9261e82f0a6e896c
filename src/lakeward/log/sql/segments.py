from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lakeward.db.dialect import begins, in_integers
from lakeward.db.prepared import Prepared
from lakeward.db.rows import records
from lakeward.db.schema import segments, topics
from lakeward.log.records import SegmentInfo
from lakeward.tables.sql import retired

_c = segments.c
_COLUMNS = (
    _c.segment_id.label("id"),
    _c.partition_id,
    _c.base_offset,
    _c.end_offset,
    _c.record_count,
    _c.size_bytes,
    _c.s3_bucket,
    _c.s3_key,
    _c.location,
    _c.first_timestamp,
    _c.last_timestamp,
    _c.created_at,
    _c.given_id,
    _c.given_created_at,
)


def _select(topic_id: int) -> sa.Select[Any]:
    """Not a join with topics, here and below: PostgreSQL then reads all of a partition and sorts it."""
    name = sa.select(topics.c.name).where(topics.c.topic_id == topic_id).scalar_subquery()
    return sa.select(name.label("topic"), *_COLUMNS).where(_c.topic_id == topic_id)


_TOPIC_ID = (
    sa.select(topics.c.topic_id)
    .where(
        topics.c.warehouse_id == sa.bindparam("warehouse_id"),
        topics.c.name == sa.bindparam("name"),
        topics.c.deleted_at.is_(None),
    )
    .scalar_subquery()
)
_ONE: sa.ColumnElement[int] = sa.literal_column(
    "1", sa.Integer
)  # a limit that is a parameter has PostgreSQL plan each execution anew


def _at_offset(topic_id: Any) -> Prepared:
    """The only one that may hold an offset: the last that begins at it or before."""
    return Prepared(
        sa.select(sa.bindparam("name", type_=sa.Text).label("topic"), *_COLUMNS)
        .where(
            _c.topic_id == topic_id,
            _c.partition_id == sa.bindparam("partition_id"),
            _c.base_offset <= sa.bindparam("offset"),
        )
        .order_by(_c.base_offset.desc())
        .limit(_ONE)
    )


AT_OFFSET = _at_offset(_TOPIC_ID)
AT_OFFSET_BY_ID = _at_offset(sa.bindparam("topic_id"))
_INSERT = Prepared(segments.insert())
_INSERT_ONE = Prepared(segments.insert().returning(_c.segment_id))


def insert(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    _INSERT.insert(connection, rows)


def insert_one(connection: sa.Connection, row: Mapping[str, Any]) -> int:
    """The new segment's id."""
    made = _INSERT_ONE.one(connection, row)
    assert made is not None
    return int(made["segment_id"])


def page(
    connection: sa.Connection,
    topic_id: int,
    partition_id: int,
    *,
    start: int = 0,
    end: int | None = None,
    limit: int | None = None,
) -> list[SegmentInfo]:
    """Segments that hold offsets from `start` to before `end`, by base offset."""
    query = _select(topic_id).where(_of_range(topic_id, partition_id, start, end))
    return records(SegmentInfo, connection.execute(query.order_by(_c.base_offset).limit(limit)))


def count_of_range(connection: sa.Connection, topic_id: int, partition_id: int, start: int, end: int | None) -> int:
    """How many `page` gives in all."""
    query = sa.select(sa.func.count()).select_from(segments).where(_of_range(topic_id, partition_id, start, end))
    return int(connection.execute(query).scalar_one())


def _of_range(topic_id: int, partition_id: int, start: int, end: int | None) -> sa.ColumnElement[bool]:
    is_partition = sa.and_(_c.topic_id == topic_id, _c.partition_id == partition_id)
    holding = (
        sa.select(_c.base_offset)
        .where(is_partition, _c.base_offset <= start)
        .order_by(_c.base_offset.desc())
        .limit(1)
        .scalar_subquery()
    )
    chosen = [is_partition, _c.base_offset >= sa.func.coalesce(holding, 0), _c.end_offset >= start]
    return sa.and_(*chosen) if end is None else sa.and_(*chosen, _c.base_offset < end)


_LAST_END = Prepared(
    sa.select(_c.end_offset)
    .where(_c.topic_id == sa.bindparam("topic"), _c.partition_id == sa.bindparam("partition"))
    .order_by(_c.base_offset.desc())
    .limit(_ONE)
)


def last_end(connection: sa.Connection, topic_id: int, partition_id: int) -> int | None:
    """The end offset of a partition's last segment; None if it has no segment."""
    row = _LAST_END.one(connection, {"topic": topic_id, "partition": partition_id})
    return None if row is None else int(row["end_offset"])


def of_intent(connection: sa.Connection, topic_id: int, partition_id: int, intent_id: str) -> list[SegmentInfo]:
    """What one append has put into a partition, by offset."""
    query = _select(topic_id).where(_c.partition_id == partition_id, _c.intent_id == intent_id)
    return records(SegmentInfo, connection.execute(query.order_by(_c.base_offset)))


def end_before(connection: sa.Connection, topic_id: int, partition_id: int, offset: int) -> int | None:
    """The end offset of the last segment that ends before an offset; None if there is none."""
    query = sa.select(_c.end_offset).where(_chosen(connection, topic_id, partition_id, offset, None))
    found = connection.execute(query.order_by(_c.base_offset.desc()).limit(1)).scalar_one_or_none()
    return None if found is None else int(found)


def _chosen(
    connection: sa.Connection, topic_id: int, partition_id: int | None, before: int | None, ids: Iterable[int] | None
) -> sa.ColumnElement[bool]:
    """A topic's segments: those of one partition, that end before an offset, or of some ids."""
    chosen = [_c.topic_id == topic_id]
    if partition_id is not None:
        chosen.append(_c.partition_id == partition_id)
    if before is not None:
        chosen += [_c.base_offset < before, _c.end_offset < before]
    if ids is not None:
        chosen.append(in_integers(connection, _c.segment_id, ids))
    return sa.and_(*chosen)


def delete(
    connection: sa.Connection,
    topic_id: int,
    *,
    partition_id: int | None = None,
    before: int | None = None,
    ids: Iterable[int] | None = None,
) -> int:
    return connection.execute(
        segments.delete().where(_chosen(connection, topic_id, partition_id, before, ids))
    ).rowcount


def count(connection: sa.Connection, topic_id: int) -> tuple[int, int]:
    """(segments, bytes) of a topic."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_c.size_bytes), 0)).where(_c.topic_id == topic_id)
    row = connection.execute(query).one()
    return int(row[0]), int(row[1])


def retire(
    connection: sa.Connection,
    topic_id: int,
    below: str,
    *,
    reason: str,
    now: datetime,
    expires_at: datetime,
    partition_id: int | None = None,
    before: int | None = None,
    ids: Iterable[int] | None = None,
) -> int:
    """Send the files of segments to quarantine, those below a location: the others are not ours."""
    found = {"topic_id": _c.topic_id, "file_path": _c.location, "file_size": _c.size_bytes}
    chosen = sa.and_(_chosen(connection, topic_id, partition_id, before, ids), begins(_c.location, below))
    return retired.insert_selected(
        connection, found, chosen, kind="segment", reason=reason, now=now, expires_at=expires_at
    )
