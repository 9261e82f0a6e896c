"""The demo's data, as the package brings it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

from lakeward.demo.source import (
    ARROW_TYPES,
    FLIGHTS,
    NULLS,
    PLANES,
    TABLES,
    SourceTable,
    data_folder,
    read_table,
    unpack_months,
)


@pytest.mark.parametrize(
    "name, rows", [("airlines", 16), ("airports", 1458), ("planes", 3322), ("weather", 26115), ("flights", 336776)]
)
def test_every_table_is_read_whole_and_typed(name: str, rows: int) -> None:
    source = next(table for table in TABLES if table.name == name)
    table = read_table(data_folder(), source)
    assert table.num_rows == rows
    assert {field.name: field.type for field in table.schema} == {n: ARROW_TYPES[t] for n, t in source.columns.items()}


def test_a_missing_value_is_null_in_numbers_and_in_texts() -> None:
    planes = read_table(data_folder(), PLANES)
    assert planes["year"].null_count == 70 and planes["speed"].null_count == 3299
    flights = read_table(data_folder(), FLIGHTS)
    assert flights["tailnum"].null_count == 2512 and flights["dep_time"].null_count == 8255


def test_the_twelve_months_are_the_year(tmp_path: Path) -> None:
    months = unpack_months(data_folder(), tmp_path)
    assert list(months) == list(range(1, 13))
    types = {name: ARROW_TYPES[type] for name, type in FLIGHTS.columns.items()}
    options = pa.csv.ConvertOptions(column_types=types, null_values=list(NULLS), strings_can_be_null=True)
    parts = {month: pa.csv.read_csv(file, convert_options=options) for month, file in months.items()}
    assert all(part["month"].unique().to_pylist() == [month] for month, part in parts.items())
    year = read_table(data_folder(), FLIGHTS)
    assert pa.concat_tables(parts.values()).equals(year.take(pc.sort_indices(year["month"])))


def test_spark_is_told_the_same_columns_in_the_files_order() -> None:
    table = SourceTable("t", {"a": "int", "b": "string", "c": "timestamptz"})
    assert table.spark_schema == "a INT, b STRING, c TIMESTAMP"
