"""How large the registry's tables are. Takes a connection of `Database.read`."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from lakeward.db import dialect, schema, upkeep_sqlite


class TableSize(msgspec.Struct, frozen=True):
    table: str
    rows: int
    bytes: int | None  # with its indexes; None where SQLite was built without its dbstat


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes. `tables` begins with the largest."""

    database: str  # sqlite or postgresql
    bytes: int  # SQLite: the file; PostgreSQL: our tables with their indexes
    free_bytes: int | None = None  # within it, for what is written next; PostgreSQL does not tell
    wal_bytes: int | None = None  # SQLite's write-ahead log, beside the file
    rows_are: str  # exact or estimated
    bytes_are: str  # exact, or unknown: of each table
    tables: list[TableSize]


def sizes(connection: sa.Connection) -> Sizes:
    """SQLite reads its whole file for this; PostgreSQL tells from its catalog, with rows as the last vacuum or ANALYZE counted them."""
    return _of_sqlite(connection) if dialect.is_sqlite(connection) else _of_postgresql(connection)


def _largest_first(found: list[TableSize]) -> list[TableSize]:
    return sorted(found, key=lambda each: (-(each.bytes or 0), -each.rows, each.table))


def _of_sqlite(connection: sa.Connection) -> Sizes:
    pages = upkeep_sqlite.pages(connection)
    of_tables = _dbstat(connection)
    found = [
        TableSize(name, _count(connection, name), None if of_tables is None else of_tables.get(name, 0))
        for name in schema.metadata.tables
    ]
    return Sizes(
        database="sqlite",
        bytes=pages.bytes,
        free_bytes=pages.free * pages.page_size,
        wal_bytes=upkeep_sqlite.wal_bytes(connection),
        rows_are="exact",
        bytes_are="unknown" if of_tables is None else "exact",
        tables=_largest_first(found),
    )


def _dbstat(connection: sa.Connection) -> dict[str, int] | None:
    """Bytes of each table with its indexes. None where SQLite cannot tell: dbstat is an option of its build."""
    driver: Any = connection.connection.driver_connection
    if ("dbstat",) not in driver.execute("PRAGMA module_list").fetchall():
        return None
    rows = driver.execute(
        "SELECT s.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_master s ON s.name = d.name "
        "WHERE d.aggregate = TRUE GROUP BY s.tbl_name"
    )
    return dict(rows.fetchall())


def _count(connection: sa.Connection, name: str) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(schema.metadata.tables[name])).scalar_one()


_POSTGRESQL = sa.text("""
    SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes,
           CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint ELSE s.n_live_tup END AS rows
    FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid
    WHERE c.relname = ANY(:names) AND pg_table_is_visible(c.oid)
""")


def _of_postgresql(connection: sa.Connection) -> Sizes:
    rows = connection.execute(_POSTGRESQL, {"names": list(schema.metadata.tables)})
    found = [TableSize(row.name, row.rows, row.bytes) for row in rows]
    return Sizes(
        database="postgresql",
        bytes=sum(each.bytes or 0 for each in found),
        rows_are="estimated",
        bytes_are="exact",
        tables=_largest_first(found),
    )
