"""Checksums that tell tables apart by their rows, and by nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.demo.checksums import differences, table_sums

SCHEMA = pa.schema([("i", pa.int32()), ("x", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])
TIME = datetime(2013, 1, 1, 10, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"i": 1, "x": 0.5, "s": "a", "t": TIME},
    {"i": 2, "x": None, "s": "", "t": None},
    {"i": None, "x": -0.0, "s": None, "t": TIME},
]


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


rows_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "x": st.none() | st.floats(),
            "s": st.none() | st.text(),
            "t": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
        }
    ),
    max_size=20,
)


@settings(deadline=None)  # the first call imports
@given(rows_strategy, st.randoms())
def test_order_and_chunks_do_not_matter(rows: list[dict[str, Any]], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    cut = len(rows) // 2
    chunked = pa.concat_tables([table(shuffled[:cut]), table(shuffled[cut:])])
    assert differences(table_sums(table(rows)), table_sums(chunked)) == []


def test_the_width_of_a_type_and_the_unit_of_a_time_do_not_matter() -> None:
    other = pa.schema(
        [("i", pa.int64()), ("x", pa.float64()), ("s", pa.large_string()), ("t", pa.timestamp("us", "+00:00"))]
    )
    assert table_sums(table(ROWS, other)) == table_sums(table(ROWS))
    assert table_sums(table(ROWS).set_column(2, "s", table(ROWS)["s"].dictionary_encode())) == table_sums(table(ROWS))
    assert table_sums(table(ROWS).set_column(3, "t", table(ROWS)["t"].cast(pa.timestamp("ns", "UTC")))) == table_sums(
        table(ROWS)
    )


@pytest.mark.parametrize(
    "column, value",
    [("i", 3), ("i", None), ("x", 0.5000000000000001), ("s", "A"), ("s", None), ("t", TIME.replace(microsecond=1))],
)
def test_one_other_value_shows_in_its_column_and_in_the_rows(column: str, value: Any) -> None:
    found = differences(table_sums(table(ROWS)), table_sums(table([{**ROWS[0], column: value}, *ROWS[1:]])))
    assert [line.split(":")[0] for line in found] == [f"column {column}", "rows"]


def test_null_and_the_empty_string_differ() -> None:
    swapped = [ROWS[0], {**ROWS[1], "s": None}, ROWS[2]]
    assert differences(table_sums(table(ROWS)), table_sums(table(swapped)))


def test_a_row_more_or_twice_shows() -> None:
    found = differences(table_sums(table(ROWS)), table_sums(table([*ROWS, ROWS[0]])))
    assert found[0] == "4 rows, not 3"


def test_values_that_changed_places_between_rows_show_although_every_column_is_the_same() -> None:
    swapped = [{**ROWS[0], "s": ""}, {**ROWS[1], "s": "a"}, ROWS[2]]
    found = differences(table_sums(table(ROWS)), table_sums(table(swapped)))
    assert [line.split(":")[0] for line in found] == ["rows"]


def test_a_missing_column_shows() -> None:
    found = differences(table_sums(table(ROWS)), table_sums(table(ROWS).drop_columns(["x"])))
    assert found[0] == "columns i, s, t, not i, x, s, t"


def test_a_type_that_has_no_checksum_is_refused_and_not_passed_over() -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="list"):
        table_sums(pa.table({"a": [[1]]}))
