"""Rows of DataFrames with nulls in required columns: dead letters where the table says so, in the commit of the others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import lakeward
from lakeward.arrow.broken_rows import BrokenRows
from lakeward.errors import FileRefused
from lakeward.ops import dead_letters
from lakeward.ops.records.operations import DeadLetter
from lakeward.spark.broken_rows import good_rows
from lakeward.spark.rules import RowRule
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
    assert (
        found[0].error_message
        == "null_in_required: column 'id' is required and null; fill such rows, or leave them out"
    )
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


def test_a_dataframe_that_has_bad_rows_only_when_it_is_written_is_refused_as_a_whole(
    lake: lakeward.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.create_table("t.l", {"id": "long not null"}, properties=POLICY)
    seen = str(tmp_path / "seen")

    @f.udf("long")
    def good_once(n):  # type: ignore[no-untyped-def]  # Spark takes hints for another kind of function
        import os

        if os.path.exists(seen):
            return None
        os.mkdir(seen)
        return n

    with pytest.raises(FileRefused) as refused:
        lake.append("t.l", spark.range(0, 1, 1, 1).select(good_once("id").alias("id")))
    assert refused.value.reason == "null_in_required"
    assert letters(lake) == [] and lake.files("t.l") == []


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


def test_a_cache_in_memory_alone_is_not_relied_on_and_stays_the_callers(spark: SparkSession) -> None:
    frame = spark.range(0, 20, 1, 2).selectExpr("CASE WHEN id % 10 != 3 THEN id END AS id")
    frame = frame.persist(StorageLevel.MEMORY_ONLY)
    broken = BrokenRows(5)
    with good_rows(frame, [RowRule("id", "null", "id IS NULL")], broken) as good:
        assert good.count() == 18
        infos = list(spark.sparkContext._jsc.sc().getRDDStorageInfo())
        assert sorted(info.storageLevel().useDisk() for info in infos) == [False, True]
    assert len(broken.rows) == 2
    assert frame.storageLevel == StorageLevel.MEMORY_ONLY
    infos = list(spark.sparkContext._jsc.sc().getRDDStorageInfo())
    assert [info.storageLevel().useDisk() for info in infos] == [False], "the caller's"
    frame.unpersist(blocking=True)


def test_nulls_inside_lists_and_maps_become_dead_letters(lake: lakeward.Lake, spark: SparkSession) -> None:
    schema = {
        "x0": "long not null",
        "tags": "list<string not null>",
        "points": "list<struct<x: long not null, y: list<long not null>>>",
        "named": "map<string, long not null>",
    }
    lake.create_table("t.n", schema, properties=POLICY)
    rows = [
        (1, ["a"], [(1, [1])], {"k": 1}),
        (2, ["a", None], [(1, [1])], {"k": 1}),
        (3, None, [(1, [1]), (None, [1])], None),
        (4, [], [(1, [1]), (1, [None])], {}),
        (5, None, [None, (1, None)], {}),
        (6, None, None, {"j": 1, "k": None}),
        (7, None, None, None),
    ]
    kinds = "x0 long, tags array<string>, points array<struct<x: long, y: array<long>>>, named map<string, long>"
    result = lake.append("t.n", spark.createDataFrame(rows, kinds))
    assert (result.rows, result.dead_letters) == (3, 4)
    assert sorted(lake.scan("t.n").read_all()["x0"].to_pylist()) == [1, 5, 7]
    found = {letter.record_data["x0"]: str(letter.error_message) for letter in letters(lake)}
    columns = {2: "tags.element", 3: "points.element.x", 4: "points.element.y.element", 6: "named.value"}
    assert found.keys() == columns.keys()
    assert all(f"'{columns[row]}'" in message for row, message in found.items())


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


def test_texts_that_are_no_utf8_enter_no_table(lake: lakeward.Lake, spark: SparkSession) -> None:
    schema = {"id": "long", "it's": "string", "deep": "map<string, list<struct<x: string>>>"}
    lake.create_table(NAME, schema, properties=POLICY)
    good = spark.sql("SELECT 1L AS id, 'a' AS `it's`, map('k', array(named_struct('x', 'b'), NULL)) AS deep")
    none = spark.sql(
        "SELECT 2L AS id, CAST(NULL AS string) AS `it's`, CAST(NULL AS MAP<STRING, ARRAY<STRUCT<x: STRING>>>) AS deep"
    )
    assert lake.append(NAME, good.union(none)).rows == 2
    for damaged, column in (
        ("CAST(X'61FF' AS string) AS `it's`", "it's"),
        ("map('k', array(named_struct('x', CAST(X'FF' AS string)))) AS deep", "deep.value.element.x"),
        ("map(CAST(X'FF' AS string), NULL) AS deep", "deep.key"),
    ):
        with pytest.raises(FileRefused, match="no UTF-8") as refused:
            lake.append(NAME, spark.sql(f"SELECT 3L AS id, {damaged}"))
        assert refused.value.reason == "wrong_type" and repr(column) in str(refused.value)
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [1, 2]


def test_a_table_that_evolves_grows_by_a_dataframes_columns(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table(NAME, {"id": "int"}, properties={"lakeward.evolve": "widen"})
    assert lake.append(NAME, spark.sql("SELECT 5000000000L AS id, 'red' AS colour")).rows == 1
    assert lake.scan(NAME).read_all().to_pylist() == [{"id": 5_000_000_000, "colour": "red"}]


@pytest.mark.parametrize("policy", ["refuse", "dead-letter"])
def test_values_of_other_types_and_extra_columns_are_judged_row_by_row(
    lake: lakeward.Lake, spark: SparkSession, policy: str
) -> None:
    schema = {"id": "int not null", "price": "decimal(9,2)", "day": "date", "share": "float"}
    lake.create_table(NAME, schema, properties=POLICY | {"lakeward.invalid-rows": policy})
    given = spark.range(4).selectExpr(
        "CAST(id AS string) AS ID",
        "id + 0.5D AS price",
        "concat('2024-01-3', id % 2) AS day",
        "CAST(id AS double) AS share",
    )
    assert lake.append(NAME, given).rows == 4
    assert lake.scan(NAME).read_all().sort_by("id").to_pylist()[1] == {
        "id": 1, "price": Decimal("1.50"), "day": dt.date(2024, 1, 31), "share": 1.0
    }  # fmt: skip
    bad = spark.sql(
        "SELECT * FROM VALUES ('10', 1e39, NULL), ('x', 1.0, NULL), ('11', 1.0, 'red'), ('12', 1.0, NULL) AS t(id, share, colour)"
    ).selectExpr("id", "CAST(share AS double) AS share", "colour")
    if policy == "refuse":
        with pytest.raises(FileRefused, match=r"column 'id': 'x'|column 'share'") as refused:
            lake.append(NAME, bad.drop("colour"))
        assert refused.value.reason == "wrong_type"
        return
    result = lake.append(NAME, bad)
    assert (result.rows, result.dead_letters) == (1, 3)
    found = {
        letter.record_data["id"]: (letter.envelope["reason"], letter.record_data["colour"]) for letter in letters(lake)
    }
    assert found == {"10": ("wrong_type", None), "x": ("wrong_type", None), "11": ("unknown_column", "red")}
    assert_nothing_left_over(lake, NAME)
