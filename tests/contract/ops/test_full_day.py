"""A full day with the manager: awaited and not, on both databases, from a URL, an engine and a lake."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward import aio
from lakeward.errors import InvalidInput, InvalidSetting
from lakeward.metadata import (
    DeadLetterFilter,
    DeadLetterStatus,
    ErrorStatus,
    ErrorType,
    EvolutionType,
    MarkerType,
    MetadataManager,
    OperationType,
    SchemaDefinition,
    SyncMode,
    SyncRunStatistics,
    SyncStatus,
)
from tests.support.lakes import open_lake

ID: dict[str, Any] = {"name": "id", "type": "bigint", "nullable": False, "primary_key": True}
NAME: dict[str, Any] = {"name": "name", "type": "varchar(100)", "nullable": False}
GROWN: list[dict[str, Any]] = [
    {"name": "email", "type": "varchar(255)", "nullable": True},
    {"name": "phone", "type": "varchar(20)"},
]
TOKEN = {"resume_token": {"_data": "82635019A0000000012B042C0100296E5A1004"}, "cluster_time": {"t": 1, "i": 2}}
STATISTICS = SyncRunStatistics(
    records_processed=10_000,
    records_inserted=8_000,
    records_updated=1_500,
    records_deleted=500,
    bytes_processed=5_000_000,
)


async def full_day(manager: Any) -> None:
    """`manager` awaited."""
    run = await manager.start_sync_run(
        "ecommerce",
        SyncMode.STREAM,
        config_hash="abc123",
        source_info={"type": "mongodb", "uri": "mongodb://app:hunter2@db/shop"},
        destination_info={"table": "sales.orders"},
        instance_id="instance-1",
        node_id="node-1",
    )
    assert run.source_info == {"type": "mongodb", "uri": "mongodb://***@db/shop"}

    await manager.update_stream_position("ecommerce", TOKEN, sync_run_id=run.id)
    assert await manager.get_stream_position("ecommerce") == TOKEN
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    await manager.update_batch_timestamp("ecommerce", moment, "orders")
    assert await manager.get_batch_timestamp("ecommerce", "orders") == moment
    await manager.update_initial_marker("ecommerce", {"state": "completed"}, "orders")
    assert await manager.get_initial_marker("ecommerce", "orders") == {"state": "completed"}

    created = await manager.register_schema(
        "ecommerce", "customers", SchemaDefinition([ID, NAME], ["id"]), EvolutionType.CREATE
    )
    grown = await manager.register_schema(
        "ecommerce",
        "customers",
        SchemaDefinition([ID, NAME, *GROWN], ["id"], [{"name": "by_email", "columns": ["email"]}]),
        EvolutionType.ADD_COLUMN,
    )
    assert (created.version, grown.version, grown.previous_version) == (1, 2, 1)
    assert grown.evolution_type == EvolutionType.ADD_COLUMN
    assert await manager.get_schema_version("ecommerce", "customers") == grown
    assert await manager.list_schema_versions("ecommerce", "customers") == [created, grown]
    assert await manager.list_schema_tables() == [("ecommerce", "customers", 2)]
    assert len(await manager.diff_schema_versions("ecommerce", "customers", 1, 2)) == 3

    await manager.heartbeat(run.id)
    await manager.update_sync_run(run.id, SyncRunStatistics(5_000))
    error = await manager.log_error(
        "ecommerce",
        ErrorType.VALIDATION,
        "email is not valid",
        table_name="customers",
        sync_run_id=run.id,
        error_code="VAL_001",
        error_details={"field": "email"},
        stack_trace="Traceback ...",
        record_data={"id": 5, "email": "nowhere"},
        operation_type=OperationType.INSERT,
    )
    assert (error.status, error.next_retry_at is not None) == (ErrorStatus.OPEN, True)
    letter = await manager.add_to_dead_letter_queue(
        "ecommerce",
        "customers",
        OperationType.INSERT,
        {"id": 5, "email": "nowhere"},
        sync_run_id=run.id,
        error_log_id=error.id,
        source_record_id="5",
        error_message="email is not valid",
    )
    done = await manager.complete_sync_run(run.id, SyncStatus.COMPLETED, STATISTICS)
    assert (done.statistics, done.status) == (STATISTICS, SyncStatus.COMPLETED)
    assert await manager.get_sync_run(run.id) == done
    assert await manager.list_sync_runs("ecommerce", SyncStatus.COMPLETED) == [done]

    assert await manager.recover_failed_runs(max_age_hours=24) == []
    assert await manager.errors_due() == []
    statistics = await manager.get_sync_statistics("ecommerce", hours=24)
    assert statistics["sync_runs"]["total_runs"] == statistics["sync_runs"]["completed_runs"] == 1
    assert statistics["sync_runs"]["total_records_processed"] == 10_000
    assert statistics["errors"]["by_type"] == {"validation": 1}
    markers = await manager.get_active_markers()
    assert {(each.marker_type, each.table_name) for each in markers} == {
        (MarkerType.STREAM, None),
        (MarkerType.BATCH, "orders"),
        (MarkerType.INITIAL, "orders"),
    }

    (claimed,) = await manager.claim_dead_letters("worker-1", chosen=DeadLetterFilter(schema_name="ecommerce"))
    assert claimed.id == letter.id
    assert (
        await manager.resolve_dead_letter(claimed.id, "put back", claimed.claim)
    ).status == DeadLetterStatus.RESOLVED
    assert (await manager.get_error(error.id)).status == ErrorStatus.RESOLVED
    assert await manager.count_dead_letters() == {"pending": 0, "processing": 0, "resolved": 1, "discarded": 0}
    counts = await manager.cleanup_old_metadata()
    assert counts == {"dead_letter_queue": 0, "error_log": 0, "sync_runs": 0, "schema_registry": 0}


class _Awaited:
    """A manager whose answers can be awaited, so that one day serves both forms."""

    def __init__(self, manager: MetadataManager) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._manager, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return method(*arguments, **named)

        return call


def test_a_full_day(made_url: str) -> None:
    with MetadataManager(made_url, metadata_schema="lakeward", enable_cleanup=True, retention_days=30) as manager:
        asyncio.run(full_day(_Awaited(manager)))


def test_a_full_day_awaited(made_url: str) -> None:
    async def day() -> None:
        manager = aio.MetadataManager(made_url, metadata_schema="lakeward", enable_cleanup=True, retention_days=30)
        await manager.initialize()
        await full_day(manager)
        await manager.close()

    asyncio.run(day())


def test_many_calls_are_awaited_at_once(made_url: str) -> None:
    async def day() -> None:
        async with aio.MetadataManager(made_url) as manager:
            calls = [manager.update_stream_position("shop", {"n": n}, f"t{n}") for n in range(20)]
            assert len({marker.id for marker in await asyncio.gather(*calls)}) == 20

            def both(inner: MetadataManager) -> None:
                with inner.transaction() as connection:
                    inner.update_stream_position("shop", {"n": 99}, connection=connection)
                    inner.update_initial_marker("shop", {"n": 99}, connection=connection)

            await manager.run(both)
            assert await manager.get_initial_marker("shop") == {"n": 99}

    asyncio.run(day())


def test_both_forms_offer_the_same() -> None:
    for name, method in vars(MetadataManager).items():
        if inspect.isfunction(method) and not name.startswith("_") and name != "transaction":
            awaited = getattr(aio.MetadataManager, name)
            assert inspect.iscoroutinefunction(awaited), name
            assert list(inspect.signature(awaited).parameters) == list(inspect.signature(method).parameters), name


def test_a_manager_takes_an_engine_or_a_lake_and_leaves_it_open(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path) as lake:
        with MetadataManager(sa.create_engine(made_url)) as manager:
            manager.update_stream_position("shop", {"n": 1})
        shared = MetadataManager(lake)
        assert shared.get_stream_position("shop") == {"n": 1}, "a lake is open already"
        shared.initialize()
        shared.close()
        assert lake.namespaces() == []
        with lake.registry.database.transaction() as connection:
            shared.update_stream_position("shop", {"n": 2}, expected={"n": 1}, connection=connection)
        assert shared.get_stream_position("shop") == {"n": 2}


def test_a_manager_that_is_not_open_says_so(made_url: str) -> None:
    manager = MetadataManager(made_url)
    with pytest.raises(InvalidSetting, match=r"call initialize\(\)"):
        manager.get_stream_position("shop")
    manager.initialize()
    manager.initialize()
    assert manager.get_stream_position("shop") is None
    manager.close()
    manager.close()
    with pytest.raises(InvalidSetting, match="not open"):
        manager.get_active_markers()


def test_what_cannot_be_opened_is_refused_by_name(made_url: str, tmp_path: Path) -> None:
    for memory in (sa.create_engine("sqlite://"), "sqlite://", ":memory:"):
        with pytest.raises(InvalidSetting, match="is a database in memory"):
            MetadataManager(memory).initialize()
    nothing: Any
    for nothing in (None, 5, b"/tmp/x"):
        with pytest.raises(InvalidSetting, match="connection_pool is a"):
            MetadataManager(nothing)
    with pytest.raises(InvalidSetting, match="PostgreSQL's own"):
        MetadataManager(made_url, metadata_schema="information_schema").initialize()
    with pytest.raises(InvalidSetting, match="metadata_schema='Bad-Name'"):
        MetadataManager(made_url, metadata_schema="Bad-Name").initialize()
    with pytest.raises(InvalidInput, match="no span of hours"):
        MetadataManager(made_url, cleanup_schedule="at night")
    with open_lake(made_url, tmp_path) as lake:
        if lake.registry.database.is_sqlite:
            assert MetadataManager(lake, metadata_schema="ops").get_active_markers() == []
        else:
            with pytest.raises(InvalidSetting, match="was opened with 'lakeward'"):
                MetadataManager(lake, metadata_schema="ops")


def test_on_postgresql_the_tables_are_read_by_the_schemas_name(pg_url: str) -> None:
    with MetadataManager(pg_url, metadata_schema="ops") as manager:
        run = manager.start_sync_run("shop", SyncMode.BATCH)
        manager.update_stream_position("shop", {"lsn": "0/1"})
        with sa.create_engine(manager.registry.database.url).begin() as connection:
            assert connection.exec_driver_sql("SELECT id, status FROM ops.sync_runs").one() == (run.id, "running")
            query = "SELECT position_data->>'lsn' FROM ops.sync_markers"
            assert connection.exec_driver_sql(query).scalar_one() == "0/1"
            manager.update_stream_position("shop", {"lsn": "0/2"}, connection=connection)
        assert manager.get_stream_position("shop") == {"lsn": "0/2"}
