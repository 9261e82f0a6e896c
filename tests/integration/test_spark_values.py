"""Values of a DataFrame: what is taken is read back the same, by scan and by Spark; what is not is refused with its column."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import lakeward
from lakeward.errors import FileRefused
from tests.support.value_rules import ValueRule, arrow_array, value_rules

ROWS = 150
LONGEST = "9" * 38

# Every value that a DataFrame has of each type, as what the buffers of an Arrow array hold; and those that must be among them.
VALUES: dict[str, tuple[st.SearchStrategy[Any], list[Any]]] = {
    "boolean": (st.booleans(), [True, False]),
    "int": (st.integers(-(2**31), 2**31 - 1), [-(2**31), 2**31 - 1, 0]),
    "long": (st.integers(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1, 0]),
    "float": (st.floats(width=32), [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.401298464324817e-45]),
    "double": (st.floats(), [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 1.7976931348623157e308]),
    "decimal(9,2)": (st.decimals(-9_999_999, 9_999_999, places=2), ["9999999.99", "-9999999.99", "-0.01"]),
    "decimal(18,0)": (st.decimals(-(10**18) + 1, 10**18 - 1, places=0), ["9" * 18, "-" + "9" * 18]),
    "decimal(38,38)": (st.decimals("-0.5", "0.5", places=38), ["0." + LONGEST, "-0." + LONGEST]),
    "decimal(38,0)": (st.decimals(-(10**38) + 1, 10**38 - 1, places=0), [LONGEST, "-" + LONGEST]),
    "date": (st.integers(-(2**31), 2**31 - 1), [-(2**31), 2**31 - 1, -1, 0]),
    "timestamp": (st.integers(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1, -1, 0]),
    "timestamptz": (st.integers(-(2**63), 2**63 - 1), [-(2**63), 2**63 - 1, -1, 0]),
    "string": (st.text(), ["", "\0", "\U0010ffff", "\ufeff", "e\u0301", "x" * 70_000]),
    "binary": (st.binary(), [b"", b"\0", b"\xff" * 70_000]),
    "fixed[3]": (st.binary(min_size=3, max_size=3), [b"\0\0\0", b"\xff\xff\xff"]),
    "uuid": (st.uuids().map(str), [str(uuid.UUID(int=0)), str(uuid.UUID(int=2**128 - 1))]),
}
ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"), "string": pa.string(),
    "binary": pa.binary(), "fixed[3]": pa.binary(), "uuid": pa.string(), "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,0)": pa.decimal128(18, 0), "decimal(38,38)": pa.decimal128(38, 38), "decimal(38,0)": pa.decimal128(38, 0),
}  # fmt: skip


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """So many examples: of a job for each, a test would take too long."""
    found: list[Any] = []

    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return (found * count)[:count]  # fewer, where there are no more


def array_of(type_: str, raws: list[Any]) -> pa.Array:
    target = ARROW[type_]
    if pt.is_temporal(target):
        return pa.array(raws, pa.int32() if type_ == "date" else pa.int64()).view(target)
    if pt.is_decimal(target):
        return pa.array([None if raw is None else str(raw) for raw in raws], pa.string()).cast(target)
    return pa.array(raws, target)


def offsets(lengths: list[int | None]) -> pa.Array:
    ends = [0, *accumulate(length or 0 for length in lengths)]
    return pa.array(
        [None if length is None else end for length, end in zip(lengths, ends, strict=False)] + ends[-1:], pa.int32()
    )


def columns_of(type_: str) -> dict[str, tuple[str, pa.Array]]:
    """What kind of column -> (its type, its values): the values alone, and inside of each nested type."""
    strategy, extremes = VALUES[type_]
    raws = [*extremes, None, *drawn(st.none() | strategy, ROWS)][:ROWS]
    alone = array_of(type_, raws)
    lists = [None, [], [None], extremes, *drawn(st.none() | st.lists(st.none() | strategy, max_size=4), ROWS)][:ROWS]
    elements = array_of(type_, [each for some in lists for each in some or []])
    lengths = [None if some is None else len(some) for some in lists]
    made = {
        "alone": (type_, alone),
        "list": (f"list<{type_}>", pa.ListArray.from_arrays(offsets(lengths), elements)),
        "struct": (
            f"struct<x: {type_}>",
            pa.StructArray.from_arrays(
                [alone], names=["x"], mask=pa.array([n % 7 == 5 for n in range(ROWS)], pa.bool_())
            ),
        ),
        "deep": (
            f"list<struct<x: {type_}>>",
            pa.ListArray.from_arrays(offsets(lengths), pa.StructArray.from_arrays([elements], names=["x"])),
        ),
        "value": (
            f"map<int, {type_}>",
            pa.MapArray.from_arrays(offsets(lengths), pa.array(range(len(elements)), pa.int32()), elements),
        ),
    }
    if type_ not in ("float", "double"):  # Spark takes 0.0 and -0.0 for one key
        keys = [extremes, *drawn(st.none() | st.lists(strategy, max_size=3, unique_by=str), ROWS)][:ROWS]
        flat = array_of(type_, [each for some in keys for each in some or []])
        ends = offsets([None if some is None else len(some) for some in keys])
        made["key"] = (
            f"map<{type_}, int>",
            pa.MapArray.from_arrays(ends, flat, pa.array(range(len(flat)), pa.int32())),
        )
    return made


def plain(type_: pa.DataType) -> pa.DataType:
    """The type with numbers for times, of which Python has some only."""
    if pt.is_map(type_):
        return pa.map_(plain(type_.key_type), plain(type_.item_type))
    if pt.is_list(type_) or pt.is_large_list(type_):
        return pa.list_(pa.field(type_.value_field.name, plain(type_.value_type)))
    if pt.is_struct(type_):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in type_])
    return pa.int32() if pt.is_date32(type_) else pa.int64() if pt.is_timestamp(type_) else type_


def texts(column: pa.ChunkedArray | pa.Array) -> list[str]:
    """Each value so that NaN is NaN, 0.0 is not -0.0, and a UUID is its text."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shown(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [shown(each) for each in value]
        return struct.pack(">d", value).hex() if isinstance(value, float) and value == value else str(value)

    return [str(shown(value)) for value in column.cast(plain(column.type)).to_pylist()]


def dataframe(spark: SparkSession, table: pa.Table, folder: Path) -> DataFrame:
    pq.write_table(table, folder / "given.parquet")
    return spark.read.parquet(str(folder / "given.parquet"))


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_whatever_a_dataframe_holds_is_read_back_the_same(
    lake: lakeward.Lake, spark: SparkSession, tmp_path: Path, is_partitioned: bool
) -> None:
    schema, columns = {"n": "long"}, {"n": pa.array(range(ROWS), pa.int64())}
    for number, type_ in enumerate(VALUES):
        for kind, (of_column, values) in columns_of(type_).items():
            schema[f"{kind}{number}"], columns[f"{kind}{number}"] = of_column, values
    given = pa.table(columns)
    lake.create_table("t.many", schema, partition_by=["bucket(3, n)"] if is_partitioned else [])
    lake.append("t.many", dataframe(spark, given, tmp_path))
    by_scan = lake.scan("t.many").read_all().sort_by("n")
    by_spark = spark.table("lakeward.t.many").orderBy("n").toArrow()
    assert by_scan.num_rows == by_spark.num_rows == ROWS
    for name in given.column_names:
        assert texts(by_scan[name]) == texts(given[name]), (name, schema[name])
        assert texts(by_spark[name]) == texts(given[name]), (name, schema[name])


# The page of values ---------------------------------------------------------------------------------------------------------
def column_of(rule: ValueRule) -> pa.Array | None:
    if rule.type.startswith("map"):
        return pa.array([list(rule.value.items())], pa.map_(pa.string(), pa.int64()))
    return None if isinstance(rule.value, uuid.UUID) else arrow_array(rule.value)


def test_each_line_of_the_page_of_values_is_so_for_dataframes(
    lake: lakeward.Lake, spark: SparkSession, tmp_path: Path
) -> None:
    """A column for each type and each type that it is given as, and a row for each line, which has a value in its column alone."""
    groups: dict[tuple[str, pa.DataType], list[tuple[ValueRule, pa.Array]]] = defaultdict(list)
    for rule in value_rules():
        array = column_of(rule)
        if array is not None and rule.type != "time":
            groups[rule.type, array.type].append((rule, array))
    mixed = {
        f"c{number}": each for number, each in enumerate(groups.items()) if not all(r.is_refused for r, _ in each[1])
    }
    lines = [(name, rule, array) for name, (_, rules) in mixed.items() for rule, array in rules]
    assert len(mixed) > 25 and len(lines) > 50
    given = {"n": pa.array(range(len(lines)), pa.int64())} | {
        name: pa.concat_arrays([array if name == of else pa.nulls(1, kind) for of, _, array in lines])
        for name, ((_, kind), _) in mixed.items()
    }
    schema = {"n": "long"} | {name: type_ for name, ((type_, _), _) in mixed.items()}
    lake.create_table("t.page", schema, properties={"lakeward.invalid-rows": "dead-letter"})
    result = lake.append("t.page", dataframe(spark, pa.table(given), tmp_path))
    found = {row["n"]: row for row in lake.scan("t.page").read_all().to_pylist()}
    for number, (name, rule, _) in enumerate(lines):
        assert (number not in found) == rule.is_refused, rule
        if not rule.is_refused:
            assert found[number][name] == rule.becomes and type(found[number][name]) is type(rule.becomes), rule
    assert result.dead_letters == sum(rule.is_refused for _, rule, _ in lines)

    never = [rules for rules in groups.values() if all(rule.is_refused for rule, _ in rules)]
    assert len(never) > 8
    for number, rules in enumerate(never):
        lake.create_table(f"t.never{number}", {"c": rules[0][0].type})
        for rule, array in rules:
            with pytest.raises(FileRefused, match=r"column 'c") as refused:
                lake.append(f"t.never{number}", dataframe(spark, pa.table({"c": array}), tmp_path))
                raise AssertionError(f"{rule} was taken")
            assert refused.value.reason == "wrong_type", rule


# Types that Spark has not ---------------------------------------------------------------------------------------------------
FIVE = "00000000-0000-0000-0000-000000000005"


def test_a_uuid_is_taken_in_each_spelling_that_other_ways_in_take(lake: lakeward.Lake, spark: SparkSession) -> None:
    spellings = [FIVE, FIVE.replace("-", ""), f"{{{FIVE}}}", f"urn:uuid:{FIVE}", "00000000-0000-0000-0000-00000000000A"]
    wanted = [uuid.UUID(spelling) for spelling in spellings]
    schema = {"u": "uuid", "l": "list<uuid>", "s": "struct<x: list<uuid>, y: int>", "m": "map<uuid, uuid>"}
    for name in ("t.spark", "t.rows"):
        lake.create_table(name, schema)
    lake.append("t.rows", [{"u": u, "l": [u, None], "s": {"x": [u], "y": 1}, "m": {u: u}} for u in spellings])
    lake.append("t.rows", [{}])
    frame = spark.createDataFrame(
        [(u, [u, None], ([u], 1), {u: u}) for u in spellings] + [(None, None, None, None)],
        "u string, l array<string>, s struct<x: array<string>, y: int>, m map<string, string>",
    )
    lake.append("t.spark", frame)
    found = lake.scan("t.spark").read_all().to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, lake.scan("t.rows").read_all().to_pylist()))
    assert {row["u"] for row in found} == {*wanted, None}


@pytest.mark.parametrize(
    ("type_", "good", "bad", "path"),
    [
        ("uuid", f"'{FIVE}'", "'five'", "'a'"),
        ("uuid", f"'{FIVE}'", "'1-1-1-1-1'", "'a'"),
        ("uuid", f"'{FIVE}'", f"'{FIVE}\\n'", "'a'"),
        ("list<uuid>", f"array('{FIVE}', NULL)", f"array('{FIVE}', 'five')", "'a.element'"),
        ("map<uuid, int>", f"map('{FIVE}', 1)", "map('five', 1)", "'a.key'"),
        ("fixed[2]", "X'0001'", "X'000102'", "'a'"),
        ("struct<x: fixed[2]>", "named_struct('x', X'0001')", "named_struct('x', X'00')", "'a.x'"),
    ],
)
def test_a_text_that_is_no_uuid_and_bytes_of_another_length_are_refused_or_are_dead_letters(
    lake: lakeward.Lake, spark: SparkSession, type_: str, good: str, bad: str, path: str
) -> None:
    rows = spark.sql(f"SELECT 1L AS id, {good} AS a UNION ALL SELECT 2L, {bad} UNION ALL SELECT 3L, NULL")
    lake.create_table("t.refused", {"id": "long", "a": type_})
    with pytest.raises(FileRefused, match=f"column {path} holds a value that is no (uuid|fixed)") as refused:
        lake.append("t.refused", rows)
    assert refused.value.reason == "wrong_type" and '{"a":' in str(refused.value)
    assert lake.files("t.refused") == []
    lake.create_table("t.letters", {"id": "long", "a": type_}, properties={"lakeward.invalid-rows": "dead-letter"})
    result = lake.append("t.letters", rows)
    assert (result.rows, result.dead_letters) == (2, 1)
    assert sorted(lake.scan("t.letters").read_all()["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    ("type_", "version"), [("time", 2), ("list<time>", 2), ("timestamp_ns", 3), ("timestamptz_ns", 3)]
)
def test_a_column_of_a_type_that_spark_lacks_is_refused_with_a_way_that_works(
    lake: lakeward.Lake, spark: SparkSession, type_: str, version: int
) -> None:
    lake.create_table("t.lacks", {"id": "long", "a": type_}, format_version=version)
    frame = spark.range(3)
    with pytest.raises(FileRefused, match=r"give the rows as an Arrow table: df\.toArrow\(\)") as refused:
        lake.append("t.lacks", frame)
    assert refused.value.reason == "wrong_type"
    assert lake.append("t.lacks", frame.toArrow()).rows == 3
