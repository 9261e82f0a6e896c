"""A day with the operations metadata: positions, schemas, a run, an error, its dead letter, statistics.

    python examples/metadata_system_demo.py [registry]

`registry` is a SQLite file or postgresql://user@host/database; without it, a file that is gone afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from lakeward import aio
from lakeward.metadata import (
    ErrorType,
    EvolutionType,
    MetadataManager,
    OperationType,
    SchemaDefinition,
    SyncMode,
    SyncRunStatistics,
    SyncStatus,
)

ID = {"name": "id", "type": "bigint", "nullable": False, "primary_key": True}
NAME = {"name": "name", "type": "varchar(100)"}
EMAIL = {"name": "email", "type": "varchar(255)"}


async def positions(manager: aio.MetadataManager) -> None:
    token = {"resume_token": {"_data": "82635019A0000000012B042C0100296E5A1004"}}
    await manager.update_stream_position("ecommerce", token)
    await manager.update_batch_timestamp("ecommerce", datetime(2026, 1, 2, tzinfo=UTC), "orders")
    print("the stream goes on at", await manager.get_stream_position("ecommerce"))
    print("batches of orders go on at", await manager.get_batch_timestamp("ecommerce", "orders"))


async def schemas(manager: aio.MetadataManager) -> None:
    await manager.register_schema("ecommerce", "customers", SchemaDefinition([ID, NAME]), EvolutionType.CREATE)
    grown = SchemaDefinition([ID, NAME, EMAIL], indexes=[{"name": "by_email", "columns": ["email"]}])
    judged = await manager.check_schema_compatibility("ecommerce", "customers", grown)
    version = await manager.register_schema("ecommerce", "customers", grown, EvolutionType.ADD_COLUMN)
    changed = ", ".join(f"{change.type.value} {change.name}" for change in version.changes)
    print(f"customers is at version {version.version} ({changed}); fully compatible: {judged.full}")


async def run_with_an_error(manager: aio.MetadataManager) -> None:
    run = await manager.start_sync_run(
        "ecommerce", SyncMode.STREAM, source_info={"uri": "mongodb://app:hunter2@db/shop"}, instance_id="demo"
    )
    print("run", run.id, "reads from", run.source_info, "(no password is stored)")
    record = {"id": 5, "email": "nowhere"}
    error = await manager.log_error(
        "ecommerce",
        ErrorType.VALIDATION,
        "email is not valid",
        table_name="customers",
        sync_run_id=run.id,
        error_code="VAL_001",
        record_data=record,
        operation_type=OperationType.INSERT,
        max_retries=1,
    )
    await manager.record_retry(error.id)  # it fails again, for the last time: the record becomes a dead letter
    await manager.complete_sync_run(
        run.id, SyncStatus.COMPLETED, SyncRunStatistics(10_000, 8_000, 1_500, 500, 5_000_000)
    )
    (letter,) = await manager.claim_dead_letters("demo", 1)
    print("dead letter", letter.id, "holds", letter.record_data)
    await manager.resolve_dead_letter(letter.id, "put back by hand", letter.claim)


async def numbers(manager: aio.MetadataManager) -> None:
    statistics = await manager.get_sync_statistics("ecommerce")
    print(
        "runs:", statistics["sync_runs"]["total_runs"], "of them completed:", statistics["sync_runs"]["completed_runs"]
    )
    print("errors by type:", statistics["errors"]["by_type"], "dead letters:", statistics["dead_letters"])
    print("given up:", await manager.recover_failed_runs(), "cleaned up:", await manager.cleanup_old_metadata())


def together(manager: MetadataManager) -> None:
    """Several operations in one transaction: all or nothing."""
    with manager.transaction() as connection:
        manager.update_stream_position("ecommerce", {"lsn": "0/16B3748"}, expected=None, table_name="payments",
                                       connection=connection)  # fmt: skip
        manager.update_initial_marker("ecommerce", {"state": "completed"}, "payments", connection=connection)


async def main(registry: str) -> None:
    async with aio.MetadataManager(registry) as manager:
        await positions(manager)
        await schemas(manager)
        await run_with_an_error(manager)
        await manager.run(together)
        await numbers(manager)
        print(len(await manager.get_active_markers()), "positions are known")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else str(Path(folder) / "registry.db")))
