"""Tables of JSON lines: registered and counted apart, read by Spark and Python, and in no Iceberg snapshot."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import SparkSession

from lakeward import Lake

SCHEMA = {"id": "long", "at": "timestamptz", "price": "decimal(9,2)", "tags": "list<string>"}
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_a_json_table_is_read_by_spark_and_python_and_counted_as_landing(lake: Lake, spark: SparkSession) -> None:
    table = lake.create_table("raw.events", SCHEMA, format="json")
    rows = [{"id": i, "at": AT, "price": Decimal("1.50"), "tags": ["a", None]} for i in range(3)]
    lake.append("raw.events", rows)
    lake.append("raw.events", spark.createDataFrame(lake.scan("raw.events").read_all()))
    counted = lake.table("raw.events")
    assert (counted.row_count, counted.landing_row_count, counted.landing_file_count) == (0, 6, 2)
    assert lake.scan("raw.events").read_all().to_pylist() == rows * 2
    read = lake.dataframe("raw.events", spark)
    assert read.count() == 6
    assert {row["price"] for row in read.collect()} == {Decimal("1.50")}
    assert lake.flush("raw.events").snapshot_id is None
    assert lake.audit("raw.events").findings == []
    assert table.format == "json"


def test_a_parquet_table_comes_as_a_dataframe_with_what_is_pending(lake: Lake, spark: SparkSession) -> None:
    lake.create_table(("odd ns", "a.b`c"), {"id": "long"})
    lake.append(("odd ns", "a.b`c"), [{"id": 1}, {"id": 2}])
    assert lake.dataframe(("odd ns", "a.b`c"), spark).count() == 2


def test_json_lines_files_that_exist_are_appended(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("raw.more", {"id": "long", "name": "string"}, format="json")
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "name": "x"}\n{"id": 2}\n', encoding="utf-8")
    assert lake.append("raw.more", source).rows == 2
    assert lake.scan("raw.more").read_all()["name"].to_pylist() == ["x", None]
