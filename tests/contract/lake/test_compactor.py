"""The compactor, as Astha would tell it of changes: what it looks at, its budget, its failures, and what it reports.

The tables are of JSON lines, which become Parquet without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from lakeward import Lake
from lakeward.arrow import scan
from lakeward.astha import events
from lakeward.components.compactor import HOUR, Budget, Compactor, CompactorConfig
from lakeward.errors import InvalidSetting, StorageError
from lakeward.maintenance import compaction, compaction_plan
from lakeward.registry import Registry, intents, leases
from lakeward.retry import RetryConfig
from lakeward.tables import compaction as swaps
from lakeward.tables import evolution
from lakeward.tables.records import properties
from lakeward.tables.records.tables import StatsRow, Table
from tests.support.compacting import rewritten, swapped
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake

pytestmark = pytest.mark.on("sqlite")

NAME = "sales.orders"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path) as opened:
        yield opened


def compactor(lake: Lake, **options: object) -> Compactor:
    """One without Spark: of the registry alone."""
    return Compactor(lake.registry, CompactorConfig(**options))  # type: ignore[arg-type]


def changed(lake: Lake, name: str, partition: str = "{}") -> events.Event[StatsRow]:
    table = lake.table(name)
    record = StatsRow(
        table_id=table.table_id, spec_id=0, partition_key=partition, file_type="json", partition_path="", row_count=1,
        file_count=1, total_size=1, last_modified=NOW,
    )  # fmt: skip
    return events.Event("table_stats", "UPDATE", record, NOW, table.table_id, 1)


def landed(lake: Lake, name: str = NAME, times: int = 3) -> None:
    make_table(lake, name, format="json", partition_by=["name"])
    for _ in range(times):
        lake.append(name, ROWS)


def test_json_lines_become_parquet_that_iceberg_sees_and_the_counters_follow(lake: Lake) -> None:
    landed(lake)
    expected = sorted(lake.scan(NAME).read_all()["id"].to_pylist())
    before = lake.table(NAME).landing_size
    working = compactor(lake)
    working.on_refresh()
    result = working.run_once()
    table = lake.table(NAME)
    assert (result.jobs, result.files_before, result.files_after, result.rows) == (1, 9, 3, 18)
    assert (result.bytes_before, result.bytes_after) == (before, table.total_size)
    assert (table.row_count, table.file_count, table.landing_row_count, table.landing_size) == (18, 3, 0, 0)
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == expected
    lake.flush(NAME)
    static = StaticTable.from_metadata(lake.table(NAME).metadata_location or "")
    assert sorted(static.scan().to_arrow()["id"].to_pylist()) == expected
    assert working.metrics().done == result
    assert working.run_once().jobs == 0
    assert_nothing_left_over(lake, NAME)


ALTERATIONS: dict[str, Callable[[Lake], object]] = {
    "added": lambda lake: (lake.add_column(NAME, "more", "int"), lake.append(NAME, [{**ROWS[0], "more": 1}])),
    "renamed": lambda lake: (lake.rename_column(NAME, "id", "number"), lake.append(NAME, [{"number": 0, "name": "a"}])),
    "dropped": lambda lake: lake.drop_column(NAME, "id"),
    "partitioned": lambda lake: lake.set_partition_spec(NAME, ["bucket(2, id)"]),
    "not partitioned": lambda lake: lake.set_partition_spec(NAME, []),
}


@pytest.mark.parametrize("how", list(ALTERATIONS))
@pytest.mark.parametrize("when", ["planned", "reading"])
def test_a_table_that_is_altered_during_compaction_costs_a_retry_at_most(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    landed(lake, times=2)
    alter = [ALTERATIONS[how]]

    def once(*_: object) -> bool:
        if alter:
            alter.pop()(lake)
        return True

    working = compactor(lake)
    working.on_refresh()
    if when == "planned":
        real = compaction.run_job
        monkeypatch.setattr(compaction, "run_job", lambda *a, **k: (once(), real(*a, **k))[1])
    else:
        prepare = scan.prepare
        monkeypatch.setattr(scan, "prepare", lambda *a: (prepare(*a), once())[0])
    first = working.run_once()
    expected = sorted(map(str, lake.scan(NAME).read_all().to_pylist()))
    working.run_once()
    metrics = working.metrics()
    assert (metrics.failures, metrics.last_error) == (0, None)
    assert first.conflicts <= 1
    table = lake.table(NAME)
    assert (table.landing_file_count, table.row_count) == (0, len(expected))
    assert sorted(map(str, lake.scan(NAME).read_all().to_pylist())) == expected
    lake.flush(NAME)
    assert_nothing_left_over(lake, NAME)


def test_a_table_that_is_purged_once_it_was_found_is_no_failure(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    landed(lake, times=1)
    working = compactor(lake)
    working.on_refresh()

    def plan(registry: Registry, table: Table, *partitions: Any) -> compaction_plan.Plan:
        lake.drop_table(NAME, purge=True)
        lake.registry.schemas.clear()
        return compaction_plan.plan(registry, table, *partitions)

    monkeypatch.setattr(compaction, "plan", plan)
    working.run_once()
    metrics = working.metrics()
    assert (metrics.failures, metrics.waiting, metrics.last_error) == (0, 0, None)


def test_a_partition_whose_files_never_rest_keeps_no_other_from_being_compacted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(lake)
    prepare = scan.prepare
    is_at_it = False

    def replaced(*arguments: Any) -> Any:
        nonlocal is_at_it
        prepared = prepare(*arguments)
        if not is_at_it:
            is_at_it = True
            lake.retire_partitions(NAME, [{"name": "n0"}])
            lake.append(NAME, [{"id": 0, "name": "n0"}])
            is_at_it = False
        return prepared

    monkeypatch.setattr(scan, "prepare", replaced)
    working = compactor(lake)
    working.on_refresh()
    working.run_once()
    left = {file.partition_path for file in lake.files(NAME) if file.file_type == "json"}
    assert left == {"name=n0"}
    assert working.metrics().failures == 0


def test_only_partitions_that_an_event_named_are_looked_at(lake: Lake) -> None:
    landed(lake)
    working = compactor(lake)
    working.on_event(changed(lake, NAME, '{"1000":"n1"}'))
    assert working.metrics().waiting == 1
    assert working.run_once().files_before == 3
    assert {file.partition_path for file in lake.files(NAME) if file.file_type == "parquet"} == {"name=n1"}
    assert working.metrics().waiting == 0


def test_an_event_that_comes_twice_or_says_that_rows_are_gone_does_no_harm(lake: Lake) -> None:
    landed(lake)
    working = compactor(lake)
    for _ in range(2):
        working.on_event(changed(lake, NAME, '{"1000":"n1"}'))
    gone = changed(lake, NAME, '{"1000":"n2"}')
    working.on_event(events.Event(gone.table, "DELETE", gone.data, NOW, gone.table_id, 2))
    assert working.run_once().files_before == 3
    working.on_event(changed(lake, NAME, '{"1000":"n1"}'))
    assert working.run_once().jobs == 0


def test_a_table_whose_properties_change_is_looked_at_without_an_event_of_its_files(lake: Lake) -> None:
    landed(lake)
    landed(lake, "sales.other")
    lake.set_properties(NAME, {properties.COMPACTION_ENABLED.name: "false"})
    working = compactor(lake)
    working.on_refresh()
    assert working.run_once().files_before == 9  # the other's
    assert working.metrics().waiting == 0
    assert working.run_once().jobs == 0
    lake.set_properties(NAME, {properties.COMPACTION_ENABLED.name: "true"})
    assert working.run_once().files_before == 9
    assert working.run_once().jobs == 0


def test_a_table_that_failed_for_a_property_is_tried_again_once_that_is_mended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(lake)
    with monkeypatch.context() as unchecked:  # as SQL typed by hand may set it
        unchecked.setattr(evolution, "check_properties", lambda _: None)
        lake.set_properties(NAME, {properties.COMPACTION_FILES.name: "1"})
    working = compactor(lake)
    working.on_refresh()
    assert working.run_once().jobs == 0
    assert "2 or more" in str(working.metrics().last_error)
    assert working.run_once().jobs == 0
    lake.set_properties(NAME, {properties.COMPACTION_FILES.name: "2"})
    assert working.run_once().jobs == 1


def test_what_is_over_the_hours_budget_is_put_off_and_not_forgotten(lake: Lake) -> None:
    landed(lake, "sales.a")
    landed(lake, "sales.b")
    working = compactor(lake, bytes_per_hour=lake.table("sales.a").landing_size)
    working.on_refresh()
    assert working.run_once().jobs == 1
    assert (working.metrics().over_budget, working.metrics().waiting) == (1, 1)
    assert working.run_once().jobs == 0


def test_the_budget_is_of_any_hour_and_a_job_larger_than_it_runs_when_the_hour_is_empty() -> None:
    now = [0.0]
    budget = Budget(100, lambda: now[0])
    assert budget.take(60)
    assert not budget.take(60)
    assert budget.take(40)
    now[0] = HOUR
    assert budget.take(500)
    assert not budget.take(1)
    assert Budget(None).take(1 << 60)


def test_a_table_whose_compaction_fails_waits_and_the_others_go_on(lake: Lake) -> None:
    landed(lake, "sales.bad", 1)
    landed(lake, "sales.good", 1)
    damaged = lake.files("sales.bad")[0].file_path
    content = lake.registry.engine(damaged).read(damaged)
    lake.registry.engine(damaged).write(damaged, b"no JSON\n")
    working = compactor(lake, retry=RetryConfig(initial_delay=0.05, max_delay=0.05))
    working.on_refresh()
    assert working.run_once().files_after == 3
    metrics = working.metrics()
    assert (metrics.failures, metrics.waiting) == (1, 1)
    assert "no JSON" in (metrics.last_error or "")
    assert lake.table("sales.bad").landing_file_count == 3
    lake.registry.engine(damaged).write(damaged, content)
    while not working.run_once().jobs:
        pass
    assert (working.metrics().failures, working.metrics().waiting) == (1, 0)
    for name in ("sales.bad", "sales.good"):
        assert lake.table(name).landing_file_count == 0
        assert_nothing_left_over(lake, name)


def test_a_table_that_another_process_compacts_is_left_to_it_and_looked_at_again(lake: Lake) -> None:
    landed(lake)
    working = compactor(lake)
    working.on_refresh()
    with leases.held(lake.registry, compaction.lease_name(lake.table(NAME)), seconds=30):
        assert working.run_once().jobs == 0
    assert (working.metrics().failures, working.metrics().waiting) == (0, 1)
    assert working.run_once().jobs == 1


def test_a_dropped_table_and_one_that_is_switched_off_are_passed_over(lake: Lake) -> None:
    landed(lake, "sales.gone")
    landed(lake, "sales.off")
    lake.set_properties("sales.off", {properties.COMPACTION_ENABLED.name: "false"})
    working = compactor(lake)
    working.on_refresh()
    lake.drop_table("sales.gone")
    assert working.run_once().jobs == 0
    assert (working.metrics().failures, working.metrics().waiting) == (0, 0)


def test_without_spark_large_groups_are_left_and_the_metrics_say_why(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, merge_in_process_bytes=0) as lake:
        make_table(lake, NAME)
        for _ in range(5):
            lake.append(NAME, ROWS)
        working = compactor(lake)
        working.on_refresh()
        assert working.run_once().jobs == 0
        assert "no Spark" in (working.metrics().last_error or "")
        assert len(lake.files(NAME)) == 5


def test_without_spark_small_groups_are_merged(lake: Lake) -> None:
    make_table(lake, NAME, partition_by=["name"])
    for _ in range(5):
        lake.append(NAME, ROWS)
    working = compactor(lake)
    working.on_refresh()
    result = working.run_once()
    assert (result.jobs, result.files_before, result.files_after, result.rows) == (1, 15, 3, 30)
    assert working.metrics().last_error is None
    assert_nothing_left_over(lake, NAME)


def test_committed_files_of_a_held_table_are_left_until_it_is_let_go(lake: Lake) -> None:
    make_table(lake, NAME)
    for _ in range(5):
        lake.append(NAME, ROWS)
    lake.flush(NAME)

    def never() -> object:
        raise AssertionError("Spark was asked for")

    working = compactor(lake, spark=never)
    working.on_refresh()
    with lake.hold(NAME):
        assert working.run_once().conflicts == 1
        table, intent, made = rewritten(lake, NAME, lake.files(NAME))
        with pytest.raises(intents.Overtaken):
            swaps.swap(lake.registry, table, intent, lake.files(NAME), made)
    assert working.metrics().waiting == 1
    swapped(lake, NAME)
    assert working.run_once().conflicts == 0


def test_it_works_in_a_thread_of_its_own_and_stops(lake: Lake) -> None:
    landed(lake)
    working = compactor(lake, interval_seconds=0.01)
    working.on_refresh()
    working.start()
    try:
        while lake.table(NAME).landing_file_count:
            assert working.on_health()
    finally:
        working.stop()
    assert working.metrics().done.jobs == 1
    assert working.on_health()


def test_one_damaged_file_keeps_only_its_own_job_from_being_done(lake: Lake) -> None:
    landed(lake, times=1)
    lake.set_properties(NAME, {properties.COMPACTION_SIZE.name: "1"})  # a job for each file
    damaged = lake.files(NAME)[0].file_path
    lake.registry.engine(damaged).delete([damaged])
    with pytest.raises(StorageError):
        lake.compact(NAME)
    assert [file.file_type for file in lake.files(NAME)] == ["json", "parquet", "parquet"]


@pytest.mark.parametrize("options", [{"interval_seconds": 0}, {"max_jobs": 0}, {"bytes_per_hour": 0}])
def test_a_configuration_that_makes_no_sense_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting):
        CompactorConfig(**options)  # type: ignore[arg-type]
