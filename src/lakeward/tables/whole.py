"""All that the registry holds of one table, as of one moment: for who compares it with the objects, or makes them anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
import sqlalchemy as sa

from lakeward.db.retry import retried
from lakeward.errors import TableNotFound
from lakeward.registry.handle import Registry
from lakeward.registry.sql import intents
from lakeward.tables.bounds import Order
from lakeward.tables.counters import all_orders
from lakeward.tables.records.files import RegisteredFile, RetiredFile
from lakeward.tables.records.tables import Table, TableMetadata, TableSnapshot, TableStats
from lakeward.tables.sql import files, retired, snapshots, stats, tables


class WholeTable(msgspec.Struct, frozen=True):
    """A table's rows. `live` files are pending or in a snapshot; those that are set aside are neither."""

    table: Table
    versions: list[TableMetadata]
    live: list[RegisteredFile]
    set_aside: list[RegisteredFile]
    quarantine: list[RetiredFile]
    stats: list[TableStats]
    snapshots: list[TableSnapshot]  # expired ones too
    prefixes: tuple[str, ...]  # of writes that are under way

    @property
    def orders(self) -> Mapping[int, Order]:
        """How bounds of every column compare."""
        return all_orders(self.versions)

    @property
    def known(self) -> set[str]:
        """Locations that a row of the registry names."""
        return {file.file_path for file in [*self.live, *self.set_aside]} | {file.file_path for file in self.quarantine}

    @property
    def committed(self) -> list[RegisteredFile]:
        """The live files that are in a snapshot."""
        return [file for file in self.live if file.snapshot_id is not None]

    @property
    def retained(self) -> list[TableSnapshot]:
        """The snapshots that have not expired."""
        return [each for each in self.snapshots if each.expired_at is None]

    @property
    def last_sequence(self) -> int:
        """The newest sequence number; 0 without a snapshot."""
        return max((each.sequence_number for each in self.snapshots), default=0)

    @property
    def next_row_id(self) -> int:
        """After all that rows of files have had."""
        given = [(file.first_row_id, file.row_count) for file in self.committed]
        given += [(row.record.get("first_row_id"), row.record["row_count"]) for row in self.quarantine if row.record]
        return max((first + count for first, count in given if first is not None), default=0)


def read(registry: Registry, table: Table) -> WholeTable:
    """All of it, in one transaction. Raises TableNotFound: it was dropped, and is gone for good."""
    with registry.database.read() as connection:
        current = tables.by_id(connection, table.table_id)
        if current is None:
            raise TableNotFound(f"table {table.identifier} was dropped, and its rows are gone")
        return WholeTable(
            table=current,
            versions=tables.metadata_versions(connection, table.table_id),
            live=files.live(connection, table.table_id),
            set_aside=files.set_aside(connection, table.table_id),
            quarantine=retired.of_table(connection, table.table_id),
            stats=stats.of_table(connection, table.table_id),
            snapshots=snapshots.of_table(connection, table.table_id),
            prefixes=tuple(intent.prefix for intent in intents.of_table(connection, table.table_id)),
        )


def expire_all(connection: sa.Connection, rows: WholeTable, now: datetime) -> None:
    """In the transaction of metadata that shows none of the snapshots that are retained."""
    snapshots.mark_expired(connection, rows.table.table_id, now, [each.snapshot_id for each in rows.retained])


@retried
def fill_checksum(registry: Registry, file: RegisteredFile, checksum: str) -> bool:
    """Keep the checksum of a file that has none; whether it still had none."""
    with registry.database.transaction() as connection:
        return files.fill_checksum(connection, file.table_id, file.file_id, checksum)
