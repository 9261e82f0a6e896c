"""A batch happens once, and only where its stream stands."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lakeward.errors import BatchOutOfOrder, InvalidInput, LeaseLost
from lakeward.lake.writes import batch_of
from lakeward.registry import Registry, intents, leases
from lakeward.tables import evolution, registration, tables
from lakeward.tables.records.files import AppendResult, Batch
from tests.support.registries import (
    NAME,
    assert_exact,
    changes,
    data_file,
    last_sequence,
    make_table,
    open_intents,
    register,
    rows_of,
)


def without_seconds(result: AppendResult) -> tuple[Any, ...]:
    return (result.table_uuid, result.rows, result.files, result.bytes)


def test_a_replay_changes_nothing_and_gets_the_first_answer(registry: Registry) -> None:
    table = make_table(registry)
    first = register(registry, table, [1, 2], batch=Batch("s", "1"))
    start = last_sequence(registry)
    again = register(registry, table, [7, 8, 9], batch=Batch("s", "1"))
    assert (first.replayed, again.replayed) == (False, True)
    assert without_seconds(again) == without_seconds(first)
    assert changes(registry, start) == []
    assert tables.load(registry, NAME).row_count == 2
    assert open_intents(registry) == 1  # the replay's own, which its writer gives up
    found = registration.first_answer(registry, table, Batch("s", "1"))
    assert found is not None
    assert found.replayed
    assert registration.first_answer(registry, table, Batch("s", "2")) is None


def test_streams_ids_and_tables_are_told_apart(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, "sales.other")
    odd = [("a", "b c"), ("a b", "c"), ("A", "b c"), ("naïve 注文", "%'\""), ("a", "B c")]
    for stream, batch_id in odd:
        assert not register(registry, table, [1], batch=Batch(stream, batch_id)).replayed
    assert not register(registry, other, [1], batch=Batch(*odd[0])).replayed
    assert all(register(registry, table, [1], batch=Batch(*key)).replayed for key in odd)
    assert tables.load(registry, NAME).row_count == len(odd)


def test_an_empty_batch_is_remembered(registry: Registry) -> None:
    table = make_table(registry)
    assert not register(registry, table, batch=Batch("s", "1", 0, 5)).replayed
    assert register(registry, table, [1], batch=Batch("s", "1", 0, 5)).replayed
    with pytest.raises(BatchOutOfOrder):
        register(registry, table, [1], batch=Batch("s", "2", 0, 5))


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [(0, 5, 9), ("0/16B3748", "0/16B3750", "0/16B3999"), ({"p0": 1, "p1": 2}, {"p0": 3, "p1": 2}, {"p0": 3, "p1": 4}),
     ([1, "a"], [2, "b"], [3, "c"]), ((1, 2), (3, 4), (5, 6)), (None, 1.5, {"1": None}), ({1: 2}, {1: 3}, {1: 4})],
)  # fmt: skip
def test_a_batch_applies_only_where_its_stream_stands(registry: Registry, first: Any, second: Any, third: Any) -> None:
    table = make_table(registry)
    register(registry, table, [1], batch=Batch("s", "1", first, second))
    with pytest.raises(BatchOutOfOrder, match="stands at") as refused:
        register(registry, table, [1], batch=Batch("s", "2", first, third))
    assert "'2' of stream 's'" in str(refused.value)
    register(registry, table, [1], batch=Batch("s", "2", second, third))
    assert register(registry, table, [1], batch=Batch("s", "1", first, second)).replayed
    assert tables.load(registry, NAME).row_count == 2
    assert_exact(registry, table)


def test_a_batch_that_was_cut_elsewhere_after_a_crash_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1], batch=Batch("s", "1", 0, 100))
    for batch in (
        Batch("s", "1b", 0, 150),
        Batch("s", "1c", 50, 150),
        Batch("s", "1d", 101, 150),
        Batch("s", "1e", None, 9),
    ):
        with pytest.raises(BatchOutOfOrder, match="stands at 100"):
            register(registry, table, [1], batch=batch)
    assert tables.load(registry, NAME).row_count == 1
    assert open_intents(registry) == 4  # of the refused writes, which give them up


def test_streams_stand_each_where_they_do(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1], batch=Batch("a", "1", 0, 10))
    register(registry, table, [1], batch=Batch("b", "1", 500, 600))
    register(registry, table, [1], batch=Batch("a", "2", 10, 20))
    register(registry, table, [1], batch=Batch("a", "3"))  # says nothing, and moves nothing
    register(registry, table, [1], batch=Batch("a", "4", 20, 30))
    stands = {row["stream"]: row["position"] for row in rows_of(registry, "stream_positions")}
    assert stands == {"a": 30, "b": 600}


def test_a_name_used_again_knows_no_old_batch(registry: Registry) -> None:
    register(registry, make_table(registry), [1], batch=Batch("s", "1", 0, 5))
    tables.drop(registry, NAME)
    assert not register(registry, make_table(registry), [1], batch=Batch("s", "1", 0, 5)).replayed


def test_a_batch_is_known_after_the_table_was_renamed_and_altered(registry: Registry) -> None:
    table = make_table(registry)
    register(registry, table, [1], batch=Batch("s", "1"))
    evolution.add_column(registry, NAME, "x", "int")
    renamed = tables.rename(registry, NAME, "sales.renamed")
    assert register(registry, renamed, [1], batch=Batch("s", "1")).replayed


def test_a_batch_under_a_lost_lease_leaves_the_stream_where_it_was(registry: Registry) -> None:
    table = make_table(registry)
    lease = leases.acquire(registry, "apply", seconds=30)
    leases.release(registry, lease)
    leases.acquire(registry, "apply", seconds=30)
    with pytest.raises(LeaseLost):
        register(registry, table, [1], batch=Batch("s", "1", 0, 5), lease=lease)
    for name in ("applied_batches", "stream_positions", "table_files"):
        assert rows_of(registry, name) == []


@pytest.mark.parametrize("with_positions", [True, False])
def test_of_equal_batches_at_once_one_applies_and_the_other_gets_its_answer(
    registry: Registry, with_positions: bool
) -> None:
    table = make_table(registry)
    together = threading.Barrier(2)
    for round_number in range(5):
        positions = (round_number, round_number + 1) if with_positions else (None, None)
        batch = Batch("s", str(round_number), *positions)
        opened = [intents.open_intent(registry, table) for _ in range(2)]

        def apply(place: int, batch: Batch = batch, opened: list[Any] = opened) -> AppendResult:
            file = data_file(opened[place].prefix)
            together.wait()
            return registration.register(registry, table, opened[place], [file], batch=batch)

        with ThreadPoolExecutor(2) as pool:
            first, second = sorted(pool.map(apply, range(2)), key=lambda result: result.replayed)
        assert (first.replayed, second.replayed) == (False, True)
        assert without_seconds(first) == without_seconds(second)
    assert tables.load(registry, NAME).file_count == 5
    assert_exact(registry, table)


@pytest.mark.parametrize(
    "wrong",
    ["s", ("s",), ("s", "1", 0), ("", "1"), ("s", ""), ("s", 1), (None, "1"), ["s", "1"], ("a\0", "1"), ("s", "\ud800"),
     ("s", "1", object(), 1), ("s", "1", 0, {1, 2}.__iter__()), Batch("", "1"), Batch("s", "1", object())],
)  # fmt: skip
def test_a_wrong_batch_key_is_refused_with_its_value(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="batch="):
        batch_of(wrong)


def test_a_batch_key_is_two_or_four_parts() -> None:
    assert batch_of(None) is None
    assert batch_of(("s", "1")) == Batch("s", "1")
    assert batch_of(("s", "1", 0, 5)) == Batch("s", "1", 0, 5) == batch_of(Batch("s", "1", 0, 5))
