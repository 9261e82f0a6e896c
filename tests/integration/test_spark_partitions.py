"""Partitions that Spark and Arrow write are the same ones: every type and transform, in the registry and to every reader."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyspark.sql import DataFrame, SparkSession

import lakeward
from lakeward.errors import FileRefused
from lakeward.iceberg.arrow import to_arrow_type
from lakeward.tables.sql import stats

UTC = dt.UTC
EQUAL: Any = EqualTo  # its types say less than it takes
# Two values of each type; they are in different partitions of each transform, or in the same one.
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-1, 2**31 - 1],
    "long": [-1, 2**63 - 1],
    "float": [0.1, -16777216.0],
    "double": [0.1, 1e300],
    "decimal(9,2)": [Decimal("0.10"), Decimal("-9999999.99")],
    "decimal(38,10)": [Decimal("-0.0000000001"), Decimal("1234567890123456789012345678.0123456789")],
    "date": [dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29, 12, 30, 0, 500000)],
    "timestamptz": [dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), dt.datetime(2024, 2, 29, 12, 30, tzinfo=UTC)],
    "string": ["a/b", "ünï¢ode 😀"],
    "binary": [b"\xab\xcd\xef\x01", b""],
    "fixed[3]": [b"\xab\xcd\xef", b"\x00\x00\xff"],
    "uuid": [uuid.UUID(int=2**127 + 10), uuid.UUID(int=0xABCDEF)],
}
TIMES = ["year(x)", "month(x)", "day(x)"]
TRANSFORMS: dict[str, list[str]] = {
    "boolean": ["x"],
    "float": ["x"],
    "double": ["x"],
    "int": ["x", "bucket(4, x)", "truncate(10, x)"],
    "long": ["x", "bucket(4, x)", "truncate(10, x)"],
    "decimal(9,2)": ["x", "bucket(4, x)", "truncate(50, x)"],
    "decimal(38,10)": ["x", "bucket(4, x)", "truncate(50, x)"],
    "date": ["x", "bucket(4, x)", *TIMES],
    "timestamp": ["x", "bucket(4, x)", *TIMES, "hour(x)"],
    "timestamptz": ["x", "bucket(4, x)", *TIMES, "hour(x)"],
    "string": ["x", "bucket(4, x)", "truncate(2, x)"],
    "binary": ["x", "bucket(4, x)", "truncate(2, x)"],
    "fixed[3]": ["bucket(4, x)"],
    "uuid": ["bucket(4, x)"],
}
# Each table has one column of each type that has so many transforms, and is partitioned by all of them: few jobs try all.
ROUNDS: list[dict[str, str]] = [
    {type_: transforms[number] for type_, transforms in TRANSFORMS.items() if number < len(transforms)}
    for number in range(max(map(len, TRANSFORMS.values())))
]


def column_of(type_: str) -> str:
    return f"x{list(TRANSFORMS).index(type_)}"


def frame(spark: SparkSession, types: Iterable[str], ids: list[int]) -> DataFrame:
    """The same rows that Arrow writes, as Spark has the types."""
    columns: dict[str, Any] = {"id": pa.array(ids, pa.int64())}
    for type_ in types:
        values = [str(value) for value in VALUES[type_]] if type_ == "uuid" else VALUES[type_]
        kind = {"uuid": pa.string(), "fixed[3]": pa.binary()}.get(type_) or to_arrow_type(type_.replace(",", ", "))
        columns[column_of(type_)] = pa.array(values, kind)
    made = spark.createDataFrame(pa.table(columns))
    name = column_of("timestamp")
    return made.withColumn(name, made[name].cast("timestamp_ntz")) if name in columns else made


def partition_rows(lake: lakeward.Lake) -> dict[tuple[str, str], int]:
    """The rows of statistics: those of each partition."""
    with lake.registry.database.read() as connection:
        found = stats.of_table(connection, lake.table("n.t").table_id)
    return {(each.partition_key, each.partition_path): each.row_count for each in found}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transforms", ROUNDS, ids=["-".join(sorted({*each.values()})) for each in ROUNDS])
def test_spark_and_arrow_write_into_one_partition(
    lake: lakeward.Lake, spark: SparkSession, transforms: dict[str, str]
) -> None:
    columns = {column_of(type_): type_ for type_ in transforms}
    spec = [transform.replace("x", column_of(type_)) for type_, transform in transforms.items()]
    lake.create_table("n.t", {"id": "long", **columns}, spec)
    rows = [{"id": i, **{name: VALUES[type_][i] for name, type_ in columns.items()}} for i in range(2)]
    lake.append("n.t", rows)
    once = partition_rows(lake)
    lake.append("n.t", frame(spark, transforms, [2, 3]))

    assert partition_rows(lake) == {key: 2 * count for key, count in once.items()}, (
        "a row of statistics per partition, of both"
    )
    assert sorted(lake.scan("n.t", ["id"], "id >= 0").read_all()["id"].to_pylist()) == [0, 1, 2, 3]
    for name, type_ in columns.items():
        for i, value in enumerate(VALUES[type_]):
            literal: Any = value.isoformat() if isinstance(value, dt.date) else value
            found = lake.scan("n.t", ["id"], EQUAL(name, literal)).read_all()["id"].to_pylist()
            assert sorted(found) == [i, i + 2], f"a filter of {name}, {type_}"
    assert [row.id for row in spark.sql("SELECT id FROM lakeward.n.t ORDER BY id").collect()] == [0, 1, 2, 3]
    assert not lake.files("n.t", set_aside=True)

    names = [field["name"] for field in lake.metadata("n.t").partition_by["fields"]]
    first, second = ({name: VALUES[type_][i] for name, type_ in zip(names, transforms, strict=True)} for i in range(2))
    lakeward.StorageManager(lake).insert_partition("n", "t", first, [rows[0] | {"id": 9}])
    left = sorted(lake.scan("n.t", ["id"]).read_all()["id"].to_pylist())
    assert len(once) == 2 and left == [1, 3, 9], "of both writers"
    lake.append("n.t", frame(spark, transforms, [4, 5]))
    lake.retire_partitions("n.t", [first, second])
    assert lake.scan("n.t").read_all().num_rows == 0
    assert lake.audit("n.t").findings == []


LAST = 2**63 - 1  # a common "for ever", in the year 294247
FAR = [LAST, -(2**63), 8_210_298_412_799_999_999, -8_334_632_851_200_000_001, -1, 0, None]


@pytest.mark.parametrize("transform", ["year(x)", "month(x)", "day(x)"])
def test_times_far_away_are_in_the_partitions_that_spark_gives_them(
    lake: lakeward.Lake, spark: SparkSession, transform: str
) -> None:
    lake.create_table("n.t", {"id": "long", "x": "timestamptz"}, [transform])
    lake.append("n.t", pa.table({"id": range(len(FAR)), "x": pa.array(FAR, pa.timestamp("us", "UTC"))}))
    once = partition_rows(lake)
    lake.append("n.t", spark.sql(f"SELECT id, timestamp_micros(x) AS x FROM VALUES {spark_values()} AS v(id, x)"))
    assert partition_rows(lake) == {key: 2 * count for key, count in once.items()}
    for condition, ids in (("x > '2000-01-01'", [0, 2]), ("x < '1969-01-01'", [1, 3]), ("x is null", [6])):
        wanted = sorted(ids * 2)
        assert sorted(lake.scan("n.t", ["id"], condition).read_all()["id"].to_pylist()) == wanted
        found = spark.sql(f"SELECT id FROM lakeward.n.t WHERE {condition}").collect()
        assert sorted(row.id for row in found) == wanted


def spark_values() -> str:
    # The least number is no literal.
    texts = (
        "CAST(NULL AS long)" if v is None else "-9223372036854775807L - 1" if v == -(2**63) else f"{v}L" for v in FAR
    )
    return ", ".join(f"({i}L, {text})" for i, text in enumerate(texts))


def test_hours_that_iceberg_cannot_count_are_refused_by_name(lake: lakeward.Lake, spark: SparkSession) -> None:
    lake.create_table("n.t", {"id": "long", "x": "timestamptz"}, ["hour(x)"])
    for data in (
        [{"id": 1, "x": dt.datetime(2024, 1, 1, tzinfo=UTC)}],
        spark.sql("SELECT 1L AS id, TIMESTAMP'2024-01-01' AS x"),
    ):
        lake.append("n.t", data)
    for far in (
        pa.table({"id": [2], "x": pa.array([LAST], pa.timestamp("us", "UTC"))}),
        spark.sql(f"SELECT 2L AS id, timestamp_micros({LAST}L) AS x"),
    ):
        with pytest.raises(FileRefused, match=r"'x' has \+294247-01-10T.*32 bits") as caught:
            lake.append("n.t", far)
        assert caught.value.reason == "wrong_partition"
    assert lake.table("n.t").row_count == 2


# uuid -------------------------------------------------------------------------------------------------------------------
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partition_by", [[], ["bucket(4, x)"]], ids=["plain", "bucket"])
def test_spark_finds_every_uuid(lake: lakeward.Lake, spark: SparkSession, partition_by: list[str]) -> None:
    """Java compares UUIDs as signed numbers, and bounds of theirs as Iceberg means them would have it pass files over."""
    lake.create_table("n.t", {"id": "long", "x": "uuid"}, partition_by)
    ids = [uuid.uuid5(uuid.NAMESPACE_OID, str(i)) for i in range(1_000)]
    rows = [{"id": i, "x": each} for i, each in enumerate(ids)]
    for start in (0, 250):
        lake.append("n.t", rows[start : start + 250])
    for start in (500, 750):
        lake.append(
            "n.t", spark.createDataFrame([(i, str(ids[i])) for i in range(start, start + 250)], "id long, x string")
        )
    lake.flush("n.t")
    for i in (0, 260, 510, 990):  # of each write
        found = spark.sql(f"SELECT id FROM lakeward.n.t WHERE x = '{ids[i]}'").collect()
        assert [row.id for row in found] == [i]
    some = "', '".join(str(ids[i]) for i in range(0, 1_000, 50))
    assert spark.sql(f"SELECT id FROM lakeward.n.t WHERE x IN ('{some}')").count() == 20
    for operator, wanted in (
        ("<", sum(str(each) < str(ids[5]) for each in ids)),
        (">=", sum(str(each) >= str(ids[5]) for each in ids)),
    ):
        assert spark.sql(f"SELECT id FROM lakeward.n.t WHERE x {operator} '{ids[5]}'").count() == wanted
    by_arrow = [file.statistics for file in lake.files("n.t") if 2 in file.statistics.lower]
    assert by_arrow, "Lakeward's own scans go by them"
    assert all(each.null_counts[2] == 0 and each.lower[2] <= each.upper[2] for each in by_arrow)


# (column, type, partitioned by, values). Truncated, the least whole number is below what its type holds: Java wraps around.
EDGES: list[tuple[str, str, str, list[Any]]] = [
    ("i", "int", "truncate(10, i)", [-(2**31), 2**31 - 1, 0, -1]),
    ("l", "long", "truncate(10, l)", [-(2**63), 2**63 - 1, 0, -1]),
    ("d", "double", "d", [1e308, 5e-324, float("inf"), -1e308]),
    ("f", "float", "f", [float("inf"), float("-inf"), 2.0**127, 2.0**-149]),
]


def test_values_at_the_ends_of_types_are_in_the_partitions_that_spark_gives_them_and_are_found(
    lake: lakeward.Lake, spark: SparkSession
) -> None:
    types = {name: type_ for name, type_, _, _ in EDGES}
    rows = pa.table(
        {"id": pa.array(range(4), pa.int64())}
        | {name: pa.array(values, to_arrow_type(type_)) for name, type_, _, values in EDGES}
    )
    lake.create_table("n.t", {"id": "long", **types}, [transform for _, _, transform, _ in EDGES])
    lake.append("n.t", rows)
    once = partition_rows(lake)
    assert any("i_trunc=2147483646/l_trunc=9223372036854775806/" in path for _, path in once)
    lake.append("n.t", spark.createDataFrame(rows))
    assert partition_rows(lake) == {key: 2 * count for key, count in once.items()}
    for name, type_, _, values in EDGES:
        for i, value in enumerate(values):
            found = spark.sql(f"SELECT id FROM lakeward.n.t WHERE {name} = CAST('{value}' AS {type_})").collect()
            assert [row.id for row in found] == [i, i], (name, value)
            assert lake.scan("n.t", ["id"], EQUAL(name, value)).read_all()["id"].to_pylist() == [i, i], (name, value)
