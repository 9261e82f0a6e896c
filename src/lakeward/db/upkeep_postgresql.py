"""PostgreSQL's tables kept in shape where autovacuum does not come to it. No row of ours is touched.

All take a connection of `Database.outside_transactions`.
"""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from lakeward.db import schema

# Autovacuum's own rule (https://www.postgresql.org/docs/current/routine-vacuuming.html), with twice its thresholds: by
# then it should have been here.
_BEHIND = sa.text("""
    SELECT s.relname AS name,
           s.n_dead_tup > 2 * (current_setting('autovacuum_vacuum_threshold')::float8
               + current_setting('autovacuum_vacuum_scale_factor')::float8 * greatest(c.reltuples, 0)) AS dead,
           s.n_mod_since_analyze > 2 * (current_setting('autovacuum_analyze_threshold')::float8
               + current_setting('autovacuum_analyze_scale_factor')::float8 * greatest(c.reltuples, 0)) AS changed
    FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.relname = ANY(:names) AND pg_table_is_visible(s.relid)
    ORDER BY s.relname
""")


class Behind(msgspec.Struct, frozen=True):
    """A table that autovacuum has left alone for too long."""

    table: str
    dead: bool  # many of its rows are dead
    changed: bool  # many have changed since the planner's statistics were made


def behind(connection: sa.Connection) -> list[Behind]:
    rows = connection.execute(_BEHIND, {"names": list(schema.metadata.tables)})
    return [Behind(row.name, row.dead, row.changed) for row in rows if row.dead or row.changed]


def analyze(connection: sa.Connection, table: str) -> None:
    connection.exec_driver_sql(f"ANALYZE {table}")


def vacuum(connection: sa.Connection, table: str, *, full: bool = False, shorten: bool = True) -> None:
    """Make dead rows' space free again, and the planner's statistics. Readers and writers go on.

    Args:
        full: write the table anew; nobody can read or write it meanwhile.
        shorten: give free pages at the table's end back to the disk, for which readers wait a moment.
    """
    options = "FULL, ANALYZE" if full else f"ANALYZE, TRUNCATE {'ON' if shorten else 'OFF'}"
    connection.exec_driver_sql(f"VACUUM ({options}) {table}")
