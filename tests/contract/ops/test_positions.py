"""Where syncs stand: set at once or not at all, and read as last committed. On both databases."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lakeward.db import schema
from lakeward.errors import InvalidInput, InvalidName, PositionConflict, SyncRunNotFound
from lakeward.ops import positions, schema_versions
from lakeward.ops.records.operations import MarkerType
from lakeward.ops.records.schema_versions import SchemaDefinition
from lakeward.registry import Registry
from tests.support import registries
from tests.support.registries import rows_of

STREAM = MarkerType.STREAM
POSITIONS: list[dict[str, Any]] = [
    {"lsn": "0/16B3748", "tx": 2**63 + 1},
    {"_data": "82635019A0000000012B042C0100296E5A1004", "clusterTime": {"t": 1_767_323_045, "i": 1}},
    {"file": "binlog.000003", "pos": 154, "gtids": ["a:1-5"], "snapshot": False, "ratio": 1.0},
    {"token": b"\x00\xff", "at": datetime(2026, 1, 2, tzinfo=UTC), "exact": Decimal("1.10"), "none": None},
    {},
]


@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: str(list(position)))
def test_a_position_comes_back_as_it_was_written(registry: Registry, position: dict[str, Any]) -> None:
    positions.update(registry, STREAM, "shop", position, "orders")
    for _ in range(2):  # from the database, and from memory
        found = positions.get(registry, STREAM, "shop", "orders")
        assert found == position
        assert found is not None
        assert list(found.items()) == list(position.items())
        assert [type(value) for value in found.values()] == [type(value) for value in position.values()]
        found.clear()  # what a caller does with it is its own


def test_a_position_that_changes_is_one_row_with_its_id(registry: Registry) -> None:
    first = positions.update(registry, STREAM, "shop", {"lsn": 1})
    second = positions.update(registry, STREAM, "shop", {"lsn": 2})
    assert (first.id, second.position_data) == (second.id, {"lsn": 2})
    assert second.last_updated >= first.last_updated
    assert len(rows_of(registry, "sync_markers")) == 1


def test_schema_table_and_type_have_positions_of_their_own(registry: Registry) -> None:
    keys = [(kind, table) for kind in MarkerType for table in (None, "orders", "lines")]
    for number, (kind, table) in enumerate(keys):
        positions.update(registry, kind, "shop", {"n": number}, table)
    assert [positions.get(registry, kind, "shop", table) for kind, table in keys] == [{"n": n} for n in range(9)]
    assert positions.get(registry, STREAM, "other") is None
    assert len(positions.list_markers(registry)) == 9
    assert len(positions.list_markers(registry, "shop", STREAM)) == 3
    assert positions.delete(registry, "shop", STREAM)
    assert not positions.delete(registry, "shop", STREAM)
    assert positions.get(registry, STREAM, "shop") is None


def test_a_position_is_set_only_where_the_expected_one_is(registry: Registry) -> None:
    positions.update(registry, STREAM, "shop", {"lsn": 1}, expected=None)
    with pytest.raises(PositionConflict, match=r"position of shop is \{'lsn': 1\}, not None"):
        positions.update(registry, STREAM, "shop", {"lsn": 2}, expected=None)
    for wrong in ({"lsn": 2}, {"lsn": 1.0}, {}):
        with pytest.raises(PositionConflict):
            positions.update(registry, STREAM, "shop", {"lsn": 3}, expected=wrong)
    with pytest.raises(PositionConflict, match="is none"):
        positions.update(registry, STREAM, "other", {"lsn": 3}, expected={"lsn": 1})
    assert positions.get(registry, STREAM, "shop") == {"lsn": 1}
    positions.update(registry, STREAM, "shop", {"lsn": 2}, expected={"lsn": 1})
    assert positions.get(registry, STREAM, "shop") == {"lsn": 2}


@pytest.mark.parametrize("start", [None, {"n": 0}])
def test_of_many_who_expect_the_same_position_one_sets_it(registry: Registry, start: dict[str, Any] | None) -> None:
    if start is not None:
        positions.update(registry, STREAM, "shop", start)
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def move(number: int) -> None:
        barrier.wait()
        try:
            positions.update(registry, STREAM, "shop", {"by": number}, expected=start)
            outcomes.append("set")
        except PositionConflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=move, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 5 + ["set"]


def test_a_position_commits_with_the_callers_transaction_or_not_at_all(registry: Registry) -> None:
    with pytest.raises(ZeroDivisionError), registry.database.transaction() as connection:
        positions.update(registry, STREAM, "shop", {"lsn": 1}, connection=connection)
        inside = positions.load_in(connection, STREAM, "shop")
        assert inside is not None and inside.position_data == {"lsn": 1}
        assert positions.get(registry, STREAM, "shop") is None, "not ahead of what has committed"
        raise ZeroDivisionError
    assert positions.get(registry, STREAM, "shop") is None
    with registry.database.transaction() as connection:
        positions.update(registry, STREAM, "shop", {"lsn": 1}, connection=connection)
    assert positions.get(registry, STREAM, "shop") == {"lsn": 1}


def test_a_position_commits_with_a_connection_of_the_callers_own_engine(registry: Registry) -> None:
    positions.update(registry, STREAM, "shop", {"lsn": 1})
    with sa.create_engine(registry.database.url).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (n INTEGER)")
        positions.update(registry, STREAM, "shop", {"lsn": 2}, expected={"lsn": 1}, connection=connection)
        connection.exec_driver_sql("INSERT INTO theirs VALUES (1)")
    assert positions.get(registry, STREAM, "shop") == {"lsn": 2}


def test_a_transaction_of_the_callers_outlives_a_run_that_is_unknown(registry: Registry) -> None:
    engine = sa.create_engine(registry.database.url)
    for begun in (registry.database.transaction, engine.begin):
        with begun() as connection:
            with pytest.raises(SyncRunNotFound, match="no sync run 99"):
                positions.update(registry, STREAM, "shop", {"lsn": 1}, sync_run_id=99, connection=connection)
            positions.update(registry, STREAM, "shop", {"lsn": 2}, connection=connection)
        assert positions.get(registry, STREAM, "shop") == {"lsn": 2}


def test_a_connection_of_the_callers_serves_any_number_of_calls(registry: Registry) -> None:
    """On PostgreSQL the search path grew with each, until the server's answer could not be read."""
    with sa.create_engine(registry.database.url).begin() as connection:
        for number in range(100):
            positions.update(registry, STREAM, "shop", {"n": number}, connection=connection)
        if not registry.database.is_sqlite:
            path = connection.exec_driver_sql("SHOW search_path").scalar_one()
            assert path.count("lakeward") == 1
    assert positions.get(registry, STREAM, "shop") == {"n": 99}


def test_a_position_and_a_schema_of_like_names_are_told_apart_in_memory(registry: Registry) -> None:
    definition = SchemaDefinition([{"name": "id", "type": "int"}])
    schema_versions.register(registry, "orders", "stream", definition)
    positions.update(registry, STREAM, "schema", {"lsn": 1}, "orders")
    for _ in range(2):
        found = schema_versions.get(registry, "orders", "stream")
        assert found is not None and found.schema_name == "orders"
        assert positions.get(registry, STREAM, "schema", "orders") == {"lsn": 1}


def test_what_another_handle_commits_is_seen_at_once(registry: Registry, made_url: str, tmp_path: Path) -> None:
    with registries.open_at(made_url, tmp_path) as other:
        for number in range(20):
            positions.update(other, STREAM, "shop", {"n": number})
            assert positions.get(registry, STREAM, "shop") == {"n": number}
            with other.database.transaction() as connection:  # by SQL typed by hand, too
                changed = schema.sync_markers.update().values(position_data={"n": -number})
                connection.execute(changed)
            assert positions.get(registry, STREAM, "shop") == {"n": -number}


def test_a_batchs_timestamp_comes_back_with_its_zone_or_without(registry: Registry) -> None:
    for moment in (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(2026, 1, 2)):
        positions.update_timestamp(registry, "shop", moment, "orders")
        assert positions.get_timestamp(registry, "shop", "orders") == moment
    assert positions.get_timestamp(registry, "shop", "lines") is None


def test_what_is_no_position_is_refused_and_changes_nothing(registry: Registry) -> None:
    wrong: Any
    for wrong in ("0/1", 5, None, ["a"], {"a": object()}):
        with pytest.raises(InvalidInput):
            positions.update(registry, STREAM, "shop", wrong)
    with pytest.raises(InvalidInput, match="no datetime"):
        positions.update_timestamp(registry, "shop", "2026-01-01", "orders")  # type: ignore[arg-type]
    for name in ("", "a\0b", "x" * 300):
        with pytest.raises(InvalidName):
            positions.update(registry, STREAM, name, {})
        with pytest.raises(InvalidName):
            positions.update(registry, STREAM, "shop", {}, name)
    with pytest.raises(SyncRunNotFound, match="no sync run 99"):
        positions.update(registry, STREAM, "shop", {}, sync_run_id=99)
    assert rows_of(registry, "sync_markers") == []
