"""Spark on tables whose partitions and order change, and whose manifests are merged: it writes by the new, reads by all."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakeward
from lakeward.snapshots import manifest_merging

NAME = "shop.orders"
FEW = {"commit.manifest.min-count-to-merge": "3"}


def orders(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end, 1, 1).selectExpr("id", "concat('n', id % 3) AS name", "id % 2 AS half")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.parametrize("version", [2, 3])
def test_spark_writes_by_each_spec_and_reads_the_same_rows_before_and_after_a_merge(
    spark: SparkSession, lake: lakeward.Lake, version: int
) -> None:
    schema = {"id": "long", "name": "string", "half": "long"}
    lake.create_table(NAME, schema, partition_by=["name"], properties=FEW, format_version=version)
    specs: list[list[str]] = [["name"], ["bucket(4, id)"], [], ["name"], ["half", "truncate(1, name)"]]
    for number, spec in enumerate(specs):
        lake.set_partition_spec(NAME, spec)
        lake.set_sort_order(NAME, ["id desc"] if number % 2 else [])
        for part in range(3):
            start = 100 * number + 10 * part
            lake.append(NAME, orders(spark, start, start + 10))
            lake.flush(NAME)
    assert {file.spec_id for file in lake.files(NAME)} == {0, 1, 2, 3}
    lineage = ", _row_id, _last_updated_sequence_number" if version == 3 else ""
    query = f"SELECT id, name, half{lineage} FROM lakeward.{NAME} ORDER BY id"
    filtered = f"SELECT id FROM lakeward.{NAME} WHERE name = 'n1' AND half = 0 AND id < 220 ORDER BY id"
    before, some = rows(spark, query), rows(spark, filtered)
    expected = [100 * n + i for n in range(5) for i in range(30)]
    assert [row[0] for row in before] == expected
    assert [i for (i,) in some] == [i for i in expected if i % 3 == 1 and i % 2 == 0 and i < 220]
    past = lake.snapshots(NAME)[-1].snapshot_id
    merged = manifest_merging.merge_manifests(lake.registry, lake.table(NAME).table_id)
    assert (merged.replaced, merged.created) == (15, 4)
    assert rows(spark, query) == before
    assert rows(spark, filtered) == some
    assert rows(spark, f"SELECT count(*) FROM lakeward.{NAME} VERSION AS OF {past}") == [(150,)]
    assert rows(spark, f"SELECT count(*) FROM lakeward.{NAME}.manifests") == [(4,)]
    assert rows(spark, f"SELECT sum(record_count) FROM lakeward.{NAME}.files") == [(150,)]
    assert rows(spark, f"SELECT sum(record_count) FROM lakeward.{NAME}.partitions") == [(150,)]
    lake.append(NAME, orders(spark, 1000, 1010))
    assert [row[0] for row in rows(spark, query)] == [*expected, *range(1000, 1010)]
