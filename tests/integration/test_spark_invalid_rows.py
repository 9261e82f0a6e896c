"""Rows of DataFrames with nulls in required columns: dead letters where the table says so, in the commit of the others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import lakeward
from lakeward.errors import FileRefused
from lakeward.model.operations import DeadLetter
from lakeward.registry import dead_letters
from tests.support.lakes import assert_nothing_left_over

NAME = "sales.orders"
SCHEMA = {"id": "long not null", "name": "string", "day": "date", "price": "decimal(9,2)", "at": "timestamptz"}
POLICY = {"lakeward.invalid-rows": "dead-letter", "lakeward.invalid-rows.max": "5"}


def letters(lake: lakeward.Lake) -> list[DeadLetter]:
    return dead_letters.list_dead_letters(lake.registry, limit=None)[::-1]


def test_nulls_in_a_required_column_become_dead_letters_and_all_other_rows_are_read(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    lake.create_table(NAME, SCHEMA, partition_by=["day"], properties=POLICY)
    frame = spark.range(0, 40, 1, 3).selectExpr(
        "CASE WHEN id % 10 != 3 THEN CAST(id AS int) END AS id",  # widened on the way
        "concat('n', id) AS name",
        "DATE'2024-01-30' AS day",
        "CAST(id * 1.5 AS decimal(9,2)) AS price",
        "TIMESTAMP'2024-01-30 12:00:00 UTC' AS at",
    )
    result = lake.append(NAME, frame, batch=("s", "1"))
    assert (result.rows, result.dead_letters) == (36, 4)
    assert spark.table(f"lakeward.{NAME}").count() == 36
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [i for i in range(40) if i % 10 != 3]
    found = sorted(letters(lake), key=lambda letter: int(letter.record_data["name"][1:]))
    assert [letter.record_data["name"] for letter in found] == ["n3", "n13", "n23", "n33"]
    record = found[0].record_data
    assert record["id"] is None and record["day"] == dt.date(2024, 1, 30) and record["price"] == Decimal("4.50")
    assert record["at"] == dt.datetime(2024, 1, 30, 12, tzinfo=dt.UTC)
    assert found[0].error_message == "null_in_required: column 'id' is required and 1 of its values are null"
    assert found[0].envelope == {"reason": "null_in_required", "batch": ["s", "1"]}
    assert lake.append(NAME, frame, batch=("s", "1")).dead_letters == 4
    assert len(letters(lake)) == 4
    assert_nothing_left_over(lake, NAME)
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == 0


def test_a_dataframe_that_gives_other_rows_each_time_has_each_row_in_one_place(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    lake.create_table(
        "t.r", {"n": "long", "id": "long not null"}, properties=POLICY | {"lakeward.invalid-rows.max": "200"}
    )
    chosen = f.udf(lambda n: n if __import__("random").random() < 0.5 else None, "long").asNondeterministic()
    result = lake.append("t.r", spark.range(0, 100, 1, 2).select(f.col("id").alias("n"), chosen("id").alias("id")))
    assert result.rows + result.dead_letters == 100
    written = lake.scan("t.r").read_all()["n"].to_pylist()
    assert sorted([*written, *(letter.record_data["n"] for letter in letters(lake))]) == list(range(100))


def test_required_fields_of_structs_are_looked_at_and_a_cache_of_the_caller_stays(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    lake.create_table("t.s", {"id": "long", "s": "struct<x: long not null, `a.b`: string>"}, properties=POLICY)
    frame = spark.createDataFrame(
        [(1, (1, "a")), (2, (None, "b")), (3, None)], "id long, s struct<x: long, `a.b`: string>"
    )
    frame = frame.cache()
    assert lake.append("t.s", frame).dead_letters == 1
    assert letters(lake)[0].record_data == {"id": 2, "s": {"x": None, "a.b": "b"}}
    assert "'s.x'" in str(letters(lake)[0].error_message)
    assert frame.is_cached and frame.storageLevel.useMemory
    frame.unpersist()


def test_too_many_nulls_refuse_the_dataframe_and_leave_nothing(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table(NAME, {"id": "long not null"}, properties=POLICY)
    frame = spark.range(0, 40).selectExpr("CASE WHEN id > 30 THEN id END AS id")
    with pytest.raises(FileRefused, match="more than 5 rows do not fit") as refused:
        lake.append(NAME, frame)
    assert refused.value.reason == "null_in_required"
    assert letters(lake) == [] and lake.files(NAME) == []
    assert_nothing_left_over(lake, NAME)
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == 0


def test_if_all_rows_have_nulls_the_letters_are_committed_alone(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table(NAME, {"id": "long not null"}, properties=POLICY)
    result = lake.append(NAME, spark.range(3).selectExpr("CAST(NULL AS long) AS id"))
    assert (result.rows, result.files, result.dead_letters) == (0, [], 3)


def test_a_dataframe_for_a_table_of_json_lines_is_taken_apart_too(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("t.j", {"id": "long not null"}, format="json", properties=POLICY)
    result = lake.append("t.j", spark.range(10).selectExpr("CASE WHEN id != 4 THEN id END AS id"))
    assert (result.rows, result.dead_letters) == (9, 1)
