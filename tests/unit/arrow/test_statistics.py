from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)

from lakeward.arrow import statistics
from lakeward.arrow.target import arrow_schema
from lakeward.iceberg import schemas
from lakeward.tables.records.files import FileStatistics
from lakeward.tables.records.tables import Document
from tests.unit.arrow.targets import schema_of

D = Decimal


def written(schema: Document, columns: dict[str, list[Any]], row_group_size: int | None = None, **options: Any) -> Any:
    target = arrow_schema(schema)
    table = pa.table([pa.array(columns[f.name], f.type) for f in target], schema=target)
    stream = pa.BufferOutputStream()
    options = {"store_decimal_as_integer": True, **options}
    pq.write_table(table, stream, row_group_size=row_group_size, store_schema=False, **options)
    return pq.read_metadata(pa.BufferReader(stream.getvalue()))


def of(schema: Document, columns: dict[str, list[Any]], **options: Any) -> FileStatistics:
    return statistics.from_footer(written(schema, columns, **options), schema)


def bounds(type_: str, values: list[Any], **options: Any) -> tuple[Any, Any]:
    found = of(schema_of({"x": type_}), {"x": values}, **options)
    return tuple(None if 1 not in b else statistics.decode_bound(type_, b[1]) for b in (found.lower, found.upper))  # type: ignore[return-value]


VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-5, 2**31 - 1, -(2**31)],
    "long": [-5, 2**63 - 1, -(2**63)],
    "float": [-1.5, 3.25, math.inf],
    "double": [-1.5, 3.25, -math.inf],
    "date": [dt.date(1960, 1, 1), dt.date(2024, 1, 1)],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    "timestamp": [dt.datetime(1960, 1, 1), dt.datetime(2024, 1, 1, 1, 2, 3, 4)],
    "timestamptz": [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
    "string": ["", "a", "é𝄞", "z" * 16],
    "binary": [b"", b"\x00\xff", b"z" * 16],
    "fixed[3]": [b"abc", b"\xff\x00\x80"],
    "decimal(7, 2)": [D("-12345.67"), D("0.01")],
    "decimal(17, 2)": [D("-123456789012345.67"), D("1.27"), D("1.28")],
    "decimal(38, 9)": [D("-12345678901234567890123456789.123456789"), D("99999999999999999999999999999.999999999")],
}


@pytest.mark.parametrize("type_", VALUES)
def test_bounds_are_those_that_pyiceberg_makes_of_the_same_footer(type_: str) -> None:
    schema = schema_of({"x": type_})
    footer = written(schema, {"x": [*VALUES[type_], None]})
    ours = statistics.from_footer(footer, schema)
    model = schemas.to_pyiceberg(schema)
    theirs = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(model, {}), parquet_path_to_id_mapping(model)
    )
    lower, upper = (getattr(theirs.column_aggregates[1], f"{which}_as_bytes")() for which in ("min", "max"))
    assert (ours.lower, ours.upper) == ({1: lower}, {1: upper})
    assert (ours.value_counts, ours.null_counts) == (theirs.value_counts, theirs.null_value_counts)
    assert ours.column_sizes == theirs.column_sizes
    assert statistics.split_offsets(footer) == theirs.split_offsets


def test_bounds_of_a_uuid_are_its_bytes() -> None:
    low, high = uuid.UUID(int=5), uuid.UUID(int=2**127 + 1)
    assert bounds("uuid", [high, low]) == (low.bytes, high.bytes)


def test_bounds_of_several_row_groups_are_of_all() -> None:
    assert bounds("long", [5, 1, None, None, 9, 7], row_group_size=2) == (1, 9)


@pytest.mark.parametrize("type_", ["float", "double"])
def test_nan_is_no_bound_and_zeros_are_bounded_both_ways(type_: str) -> None:
    assert bounds(type_, [math.nan, 1.0, None]) == (1.0, 1.0)
    assert bounds(type_, [math.nan]) == (None, None)
    for values in ([0.0], [-0.0], [0.0, -0.0]):
        low, high = bounds(type_, values)
        assert math.copysign(1, low) == -1
        assert math.copysign(1, high) == 1


def test_a_long_text_is_cut_by_characters_and_its_upper_bound_rounded_up() -> None:
    assert bounds("string", ["é" * 17]) == ("é" * 16, "é" * 15 + "ê")
    assert bounds("string", ["a" * 15 + "\U0010ffff" + "x"])[1] == "a" * 14 + "b"
    assert bounds("string", ["a" * 15 + "\ud7ff" + "x"])[1] == "a" * 15 + "\ue000"
    assert bounds("string", ["\U0010ffff" * 17]) == ("\U0010ffff" * 16, None)


def test_long_bytes_are_cut_and_rounded_up() -> None:
    assert bounds("binary", [b"a" * 15 + b"\xff" + b"x"]) == (b"a" * 15 + b"\xff", b"a" * 14 + b"b")
    assert bounds("binary", [b"\xff" * 17]) == (b"\xff" * 16, None)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_every_text_lies_within_its_bounds(values: list[str]) -> None:
    low = statistics.lower_bound("string", min(v.encode() for v in values))
    high = statistics.upper_bound("string", max(v.encode() for v in values))
    assert low is not None
    assert all(low <= value.encode() for value in values)
    assert high is None or all(value.encode() <= high for value in values)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=D(-(10**33)), max_value=D(10**33)))
def test_decimals_are_encoded_as_pyiceberg_does_and_read_back(value: Decimal) -> None:
    from pyiceberg.types import DecimalType

    unscaled = int(value.scaleb(4, context=__import__("decimal").Context(prec=60)))
    encoded = statistics.lower_bound("decimal(38, 4)", unscaled)
    assert encoded == to_bytes(DecimalType(38, 4), value)
    assert statistics.decode_bound("decimal(38, 4)", encoded or b"") == value


def test_a_bound_from_before_a_widening_is_read_as_what_it_was() -> None:
    narrow = statistics.lower_bound("int", -5), statistics.lower_bound("float", 1.5)
    assert [statistics.decode_bound(t, b) for t, b in zip(("long", "double"), narrow, strict=True) if b] == [-5, 1.5]


def test_nested_columns_are_counted_by_leaf_and_bounded_only_outside_lists_and_maps() -> None:
    schema = schema_of({"s": "struct<x: int, y: string>", "l": "list<int>", "m": "map<string, double>"})
    found = of(
        schema,
        {
            "s": [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None],
            "l": [[1, 2, None], [], None],
            "m": [[("a", 1.0)], None, None],
        },
    )
    ids = {column.full_name: column.field_id for column in schemas.columns(schema)}
    assert set(found.value_counts) == {c.field_id for c in schemas.columns(schema) if isinstance(c.type, str)}
    assert (found.value_counts[ids["s.x"]], found.null_counts[ids["s.x"]]) == (3, 2)
    # As Parquet counts: an empty or missing list takes one place.
    assert (found.value_counts[ids["l.element"]], found.null_counts[ids["l.element"]]) == (5, 3)
    assert set(found.lower) == {ids["s.x"], ids["s.y"]}


def test_a_file_without_statistics_has_sizes_and_counts_alone() -> None:
    schema = schema_of({"x": "long"})
    found = of(schema, {"x": [1, None]}, write_statistics=False)
    assert (found.value_counts, found.null_counts, found.lower, found.upper) == ({1: 2}, {}, {}, {})
    assert found.column_sizes[1] > 0


def test_an_all_null_column_has_counts_and_no_bounds_and_does_not_hide_other_row_groups() -> None:
    schema = schema_of({"x": "long"})
    found = of(schema, {"x": [None, None, 1, 2]}, row_group_size=2)
    assert (found.null_counts, found.lower) == ({1: 2}, {1: (1).to_bytes(8, "little")})
    assert of(schema, {"x": [None, None]}).lower == {}


def test_columns_are_found_by_field_id_not_by_name_or_place() -> None:
    schema = schema_of({"a": "long", "b": "long"})
    footer = written(schema, {"a": [1], "b": [2]})
    renamed = {**schema, "fields": [{**schema["fields"][1], "name": "a"}, {**schema["fields"][0], "name": "z"}]}
    found = statistics.from_footer(footer, renamed)
    assert found.lower == {1: (1).to_bytes(8, "little"), 2: (2).to_bytes(8, "little")}
    without = {**schema, "fields": schema["fields"][:1]}
    assert set(statistics.from_footer(footer, without).value_counts) == {1}


def test_a_footer_is_read_back_as_it_was(tmp_path: Path) -> None:
    from lakeward.storage.parquet_footers import decode_footer, encode_footer

    footer = written(schema_of({"a": "long", "b": "list<string>"}), {"a": [1, 2], "b": [["x"], None]}, row_group_size=1)
    assert decode_footer(encode_footer(footer)).equals(footer)


def test_nan_among_the_bounds_of_another_writer_is_dropped() -> None:
    schema = schema_of({"x": "double", "y": "double"})
    target = arrow_schema(schema)
    stream = pa.BufferOutputStream()
    table = pa.table([pa.array([123.25, 456.5]), pa.array([1.0, 2.0])], schema=target)
    pq.write_table(table, stream, use_dictionary=False, compression="none")
    raw = stream.getvalue().to_pybytes()
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    footer = raw[start:].replace(struct.pack("<d", 456.5), struct.pack("<d", math.nan))
    assert footer != raw[start:]
    found = statistics.from_footer(pq.read_metadata(pa.BufferReader(raw[:start] + footer)), schema)
    assert (set(found.lower), set(found.upper)) == ({2}, {2})
