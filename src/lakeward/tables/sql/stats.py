from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import lock_order
from lakeward.db.pipeline import Answer
from lakeward.db.prepared import Prepared
from lakeward.db.rows import columns, records
from lakeward.db.schema import table_stats
from lakeward.tables.records.tables import TableStats

_c = table_stats.c
_SELECT = sa.select(*columns(table_stats, TableStats))
_KEY = ("table_id", "spec_id", "partition_key", "file_type")
_IS_ROW = sa.and_(*[_c[name] == sa.bindparam(f"key_{name}") for name in _KEY])
_ONE = Prepared(_SELECT.where(_IS_ROW))
_PARTITIONS = sa.select(_c.spec_id, _c.partition_key, _c.file_count).where(_c.table_id == sa.bindparam("table_id"))
_VALUES = ("row_count", "file_count", "total_size", "last_modified", "columns")
_INSERT = Prepared(table_stats.insert())
_UPDATE = Prepared(table_stats.update().where(_IS_ROW).values({name: sa.bindparam(f"new_{name}") for name in _VALUES}))


def _key(table_id: int, spec_id: int, partition_key: str, file_type: str) -> dict[str, Any]:
    return dict(zip((f"key_{n}" for n in _KEY), (table_id, spec_id, partition_key, file_type), strict=True))


def load(
    connection: sa.Connection, table_id: int, spec_id: int, partition_key: str, file_type: str
) -> TableStats | None:
    return of_answer(send_load(connection, table_id, spec_id, partition_key, file_type))


def send_load(connection: sa.Connection, table_id: int, spec_id: int, partition_key: str, file_type: str) -> Answer:
    """As `load`; `of_answer` reads what is answered later."""
    return _ONE.send(connection, _key(table_id, spec_id, partition_key, file_type))


def of_answer(answer: Answer) -> TableStats | None:
    row = answer.row()
    return None if row is None else TableStats(**row)


def of_table(connection: sa.Connection, table_id: int) -> list[TableStats]:
    query = _SELECT.where(_c.table_id == table_id).order_by(_c.spec_id, _c.partition_key, _c.file_type)
    return records(TableStats, connection.execute(query))


def partitions(connection: sa.Connection, table_id: int) -> list[tuple[int, str, int]]:
    """(spec id, partition key, files) of each partition that has files, once for each type of files in it."""
    return [tuple(row) for row in connection.execute(_PARTITIONS, {"table_id": table_id})]


def insert(connection: sa.Connection, stats: TableStats) -> None:
    lock_order.watched(connection, stats.table_id)
    _INSERT.insert(connection, [msgspec.structs.asdict(stats)])


def update(connection: sa.Connection, stats: TableStats) -> None:
    lock_order.watched(connection, stats.table_id)
    values: Mapping[str, Any] = {f"new_{name}": getattr(stats, name) for name in _VALUES}
    _UPDATE.send(connection, {**_key(stats.table_id, stats.spec_id, stats.partition_key, stats.file_type), **values})


def delete(connection: sa.Connection, stats: TableStats) -> None:
    lock_order.watched(connection, stats.table_id)
    connection.execute(
        table_stats.delete().where(_IS_ROW),
        _key(stats.table_id, stats.spec_id, stats.partition_key, stats.file_type),
    )
