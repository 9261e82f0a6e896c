"""Spark and PyIceberg, through the catalog, travel to snapshots, tags and branches, before and after a rollback."""

from __future__ import annotations

from datetime import timedelta

from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

import lakeward

NAME = "shop.orders"


def add(lake: lakeward.Lake, number: int) -> int:
    lake.append(NAME, [{"id": number, "name": f"n{number}"}])
    made = lake.flush(NAME).snapshot_id
    assert made is not None
    return made


def ids(spark: SparkSession, rest: str = "") -> list[int]:
    return sorted(row.id for row in spark.sql(f"SELECT id FROM {NAME} {rest}").collect())


def test_engines_read_a_tag_a_branch_and_what_a_rollback_left(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table(NAME, {"id": "long", "name": "string"}, partition_by=["name"])
    first, second = add(lake, 1), add(lake, 2)
    lake.retire_partitions(NAME, [{"name": "n1"}])
    third = add(lake, 3)
    lake.create_tag(NAME, "both", second)
    lake.create_branch(NAME, "old", first)
    assert ids(spark) == [2, 3]
    assert ids(spark, "VERSION AS OF 'both'") == [1, 2]
    assert ids(spark, "VERSION AS OF 'old'") == [1]
    assert ids(spark, f"VERSION AS OF {third}") == [2, 3]

    lake.rollback(NAME, "both")
    lake.append(NAME, [{"id": 4, "name": "n4"}])
    assert ids(spark) == [1, 2, 4]
    assert ids(spark, f"VERSION AS OF {third}") == [2, 3]
    history = spark.sql(
        f"SELECT snapshot_id, is_current_ancestor FROM {NAME}.history ORDER BY made_current_at"
    ).collect()
    assert [(row.snapshot_id, row.is_current_ancestor) for row in history[:4]] == [
        (first, True),
        (second, True),
        (third, False),
        (second, True),
    ]

    lake.expire_snapshots(NAME, -timedelta(minutes=1))
    lake.clean()
    assert ids(spark) == [1, 2, 4]
    assert ids(spark, "VERSION AS OF 'both'") == [1, 2]
    assert {row.name: row.type for row in spark.sql(f"SELECT name, type FROM {NAME}.refs").collect()} == {
        "both": "TAG",
        "main": "BRANCH",
        "old": "BRANCH",
    }

    table = RestCatalog("lakeward", uri=lake.catalog_url, token=lake.token or "").load_table(NAME)
    found = table.snapshot_by_name("both")
    assert found is not None
    assert sorted(table.scan(snapshot_id=found.snapshot_id).to_arrow()["id"].to_pylist()) == [1, 2]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    assert table.snapshot_by_id(third) is None
