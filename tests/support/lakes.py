"""Lakes for tests: small, on either database, with a folder of their own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import lakeward
from lakeward import Lake
from lakeward.db.schema import leases, orphan_sweeps, pending_writes
from lakeward.names import TableName
from lakeward.tables.records.tables import Table

ROWS: list[dict[str, Any]] = [{"id": i, "name": f"n{i % 3}"} for i in range(6)]
SCHEMA = {"id": "long", "name": "string"}


def open_lake(registry_url: str, folder: Path, **settings: Any) -> Lake:
    """A lake whose clean-up waits for nothing, unless the settings say otherwise."""
    defaults = {"quarantine_seconds": 0, "metadata_quarantine_seconds": 0, "sweep_after_seconds": 0}
    return lakeward.connect(registry_url, folder / "warehouse", **{**defaults, **settings})


def make_table(lake: Lake, name: TableName = "sales.orders", **options: Any) -> Table:
    return lake.create_table(name, options.pop("schema", SCHEMA), **options)


def objects(lake: Lake, table: Table) -> set[str]:
    """Every object below a table's location."""
    return {info.location for info in lake.registry.engine(table.location).list(table.location + "/")}


def assert_nothing_left_over(lake: Lake, name: TableName) -> None:
    """The registry and the files agree, and there is no object that nothing names."""
    report = lake.audit(name)
    assert report.findings == []


def sweeps_later(lake: Lake, **after: float) -> None:
    """As if so much time had passed for the sweeps of registered writes."""
    age = timedelta(**after)
    with lake.registry.database.transaction() as connection:
        for row in connection.execute(sa.select(orphan_sweeps)).mappings().all():
            values = {name: row[name] - age for name in ("registered_at", "sweep_after")}
            connection.execute(orphan_sweeps.update().where(orphan_sweeps.c.prefix == row["prefix"]).values(values))


def run_out(lake: Lake) -> None:
    """As if all leases had run out an hour ago: of writes, and of what is held."""
    with lake.registry.database.transaction() as connection:
        for each, until in ((pending_writes, "lease_until"), (leases, "expires_at")):
            (key,) = each.primary_key.columns
            for row in connection.execute(sa.select(each)).mappings().all():
                values = {until: row[until] - timedelta(hours=1)}
                connection.execute(each.update().where(key == row[key.name]).values(values))
