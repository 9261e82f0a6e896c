"""Partition specs and sort orders from what people write, and the paths that they read."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import SortOrder

from lakeward.errors import ColumnNotFound, FileRefused, InvalidInput, InvalidSchema
from lakeward.iceberg import partitions, schemas, transforms, values
from lakeward.tables.records.files import partition_key
from lakeward.tables.records.tables import Document

SCHEMA, _ = schemas.schema_from(
    {
        "id": "long",
        "ts": "timestamptz",
        "day": "date",
        "name": "string",
        "x": "double",
        "where": "struct<city: string, tags: list<string>>",
        "a, b)": "int",
        "day(ts)": "int",
        "p desc": "int",
        "price": "decimal(9, 2)",
        "flag": "boolean",
    }
)


def fields(*partition_by: Any) -> list[tuple[int, int, str, str]]:
    spec, _ = partitions.partition_spec(partition_by, SCHEMA)
    return [(f["source-id"], f["field-id"], f["transform"], f["name"]) for f in spec["fields"]]


def evolved(specs: list[list[Any]], schema: Any = SCHEMA) -> list[Any]:
    """The specs that a table gets one after the other."""
    earlier: list[Any] = []
    last = 999
    for partition_by in specs:
        spec, last = partitions.evolved_spec(partition_by, schema, earlier, last)
        earlier.append(spec)
    return earlier


def test_a_field_that_comes_back_has_its_id_and_a_new_one_gets_one_never_given() -> None:
    specs = evolved([["id"], ["day(ts)"], [], ["day(ts)", "bucket(4, id)"], ["id"], ["id", "day(ts)"]])
    assert [s["spec-id"] for s in specs] == [0, 1, 2, 3, 0, 4]
    assert [[f["field-id"] for f in s["fields"]] for s in specs] == [
        [1000],
        [1001],
        [],
        [1001, 1002],
        [1000],
        [1000, 1001],
    ]


def test_a_name_that_another_field_had_gets_a_number() -> None:
    specs = evolved([["bucket(4, id)"], ["bucket(8, id)"], ["bucket(4, id)"], ["truncate(8, id)"], ["truncate(2, id)"]])
    names = [s["fields"][0]["name"] for s in specs]
    assert names == ["id_bucket", "id_bucket_8", "id_bucket", "id_trunc", "id_trunc_2"]


def test_a_field_keeps_the_name_it_was_given_unless_it_is_given_another() -> None:
    source = {"source-id": 1, "transform": "bucket[4]"}
    specs = evolved([[{**source, "name": "part"}], ["bucket(4, id)"], [{**source, "name": "other"}]])
    assert [(f["name"], f["field-id"]) for s in specs for f in s["fields"]] == [
        ("part", 1000),
        ("part", 1000),
        ("other", 1000),
    ]


def test_what_is_no_field_is_refused_in_a_table_that_had_others_too() -> None:
    with pytest.raises(InvalidSchema, match="neither a text"):
        evolved([["id"], [7]])


def test_an_order_that_comes_back_has_its_id() -> None:
    earlier: list[Any] = []
    for sort_by in (["id"], ["ts desc"], [], ["id"], ["id", "ts"]):
        earlier.append(partitions.evolved_order(sort_by, SCHEMA, earlier))
    assert [o["order-id"] for o in earlier] == [1, 2, 0, 1, 3]


@pytest.mark.parametrize(
    "text, source, transform, name",
    [
        ("id", 1, "identity", "id"),
        ("identity(id)", 1, "identity", "id"),
        ("day(ts )", 2, "day", "ts_day"),
        ("days(ts)", 2, "day", "ts_day"),
        ("DAY( `ts`)", 2, "day", "ts_day"),
        ("hour(ts)", 2, "hour", "ts_hour"),
        ("month(day)", 3, "month", "day_month"),
        ("years(day)", 3, "year", "day_year"),
        ("bucket(16, id)", 1, "bucket[16]", "id_bucket"),
        ("bucket(id, 16)", 1, "bucket[16]", "id_bucket"),
        ("bucket[16](id)", 1, "bucket[16]", "id_bucket"),
        ("truncate(4,name)", 4, "truncate[4]", "name_trunc"),
        ("truncate[10]( price )", 10, "truncate[10]", "price_trunc"),
        ("void(x)", 5, "void", "x_null"),
        ("where.city", 12, "identity", "where.city"),
        ("bucket(2, where.city)", 12, "bucket[2]", "where.city_bucket"),
        ("`a, b)`", 7, "identity", "a, b)"),
        ("bucket(3, `a, b)`)", 7, "bucket[3]", "a, b)_bucket"),
        ("day(ts)", 8, "identity", "day(ts)"),
        ("p desc", 9, "identity", "p desc"),
    ],
)
def test_a_text_becomes_icebergs_field_and_a_columns_whole_name_goes_first(
    text: str, source: int, transform: str, name: str
) -> None:
    assert fields(text) == [(source, 1000, transform, name)]


def test_ids_go_on_from_the_last_one_and_documents_keep_theirs() -> None:
    given_: list[Any] = ["id", {"source-id": 4, "transform": "truncate[2]", "name": "n", "field-id": 1009}, "day"]
    spec, last = partitions.partition_spec(given_, SCHEMA, spec_id=3, last_partition_id=1004)
    assert [f["field-id"] for f in spec["fields"]] == [1005, 1009, 1010]
    assert (spec["spec-id"], last) == (3, 1010)
    assert partitions.partition_spec([], SCHEMA) == ({"spec-id": 0, "fields": []}, 999)
    PartitionSpec.model_validate(spec).check_compatible(schemas.to_pyiceberg(SCHEMA))


@pytest.mark.parametrize(
    "partition_by",
    [
        ["month(name)"],
        ["bucket(4, x)"],
        ["truncate(4, ts)"],
        ["hour(day)"],
        ["bucket(id)"],
        ["day(4, ts)"],
        ["bucket(0, id)"],
        ["where"],
        ["where.tags.element"],
        ["id", "id"],
        ["day(day)", "month(day)"],
        ["bucket(4, id)", "bucket(4, id)"],
        ["bucket(4, id)", "bucket(8, id)"],
        [{"source-id": 1, "transform": "identity", "name": "name"}],
        [{"source-id": 1, "transform": "bucket[2]", "name": "id"}],
        [{"source-id": 1, "transform": "zorder"}],
        [{"transform": "identity"}],
    ],
    ids=str,
)
def test_a_spec_that_iceberg_forbids_is_refused(partition_by: list[Any]) -> None:
    with pytest.raises(InvalidSchema):
        partitions.partition_spec(partition_by, SCHEMA)


@pytest.mark.parametrize("text", ["nothing", "zorder(id)", "day(nothing)", "ID", ""])
def test_a_column_that_is_not_there_is_named(text: str) -> None:
    with pytest.raises(ColumnNotFound):
        partitions.partition_spec([text], SCHEMA)
    with pytest.raises((ColumnNotFound, InvalidSchema)):
        partitions.sort_order([text], SCHEMA)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("id", (1, "identity", "asc", "nulls-first")),
        ("id DESC", (1, "identity", "desc", "nulls-last")),
        ("id asc nulls last", (1, "identity", "asc", "nulls-last")),
        ("id nulls last", (1, "identity", "asc", "nulls-last")),
        ("hours(ts) desc nulls first", (2, "hour", "desc", "nulls-first")),
        ("p desc", (9, "identity", "asc", "nulls-first")),
        ("p desc desc", (9, "identity", "desc", "nulls-last")),
    ],
)
def test_a_sort_text_becomes_icebergs_field(text: str, expected: tuple[Any, ...]) -> None:
    order = partitions.sort_order([text], SCHEMA, 4)
    [field] = order["fields"]
    assert (field["source-id"], field["transform"], field["direction"], field["null-order"]) == expected
    assert SortOrder.model_validate(order).order_id == 4
    assert partitions.sort_order(order["fields"], SCHEMA, 4) == order


def test_the_order_that_sorts_by_nothing_has_the_id_0_and_no_other_has() -> None:
    assert partitions.sort_order([], SCHEMA, 5) == {"order-id": 0, "fields": []}
    assert partitions.sort_order(["id"], SCHEMA)["order-id"] == 1


PATHS: list[tuple[str, Any, str]] = [
    ("name", None, "name=null"),
    ("name", "", "name="),
    ("name", "a/b=c %ü", "name=a%2Fb%3Dc+%25%C3%BC"),
    ("where.city", "x", "where.city=x"),
    ("a, b)", 7, "a%2C+b%29=7"),
    ("year(ts)", -1, "ts_year=1969"),
    ("month(ts)", -1, "ts_month=1969-12"),
    ("days(ts)", "1969-12-31", "ts_day=1969-12-31"),
    ("hour(ts)", -1, "ts_hour=1969-12-31-23"),
    ("flag", True, "flag=true"),
    ("price", "-0.50", "price=-0.50"),
    ("bucket(4, id)", 3, "id_bucket=3"),
]


@pytest.mark.parametrize("text, value, path", PATHS)
def test_paths_are_for_people(text: str, value: Any, path: str) -> None:
    spec, _ = partitions.partition_spec([text], SCHEMA)
    assert partitions.partition_path(SCHEMA, spec, {1000: value}) == path


def spec_of_two() -> Document:
    return partitions.partition_spec(["name", "where.city"], SCHEMA)[0]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_path_has_one_part_a_field_whatever_is_in_the_values(one: str, two: str) -> None:
    path = partitions.partition_path(SCHEMA, spec_of_two(), {1000: one, 1001: two})
    assert [unquote_plus(part.partition("=")[2]) for part in path.split("/")] == [one, two]


def test_an_unpartitioned_table_has_an_empty_path() -> None:
    assert partitions.partition_path(SCHEMA, {"spec-id": 0, "fields": []}, {}) == ""


A_TENTH = 0.10000000149011612  # the float nearest to 0.1, as a double


@pytest.mark.parametrize(
    ("type_", "transform", "spelled", "canonical"),
    [
        ("binary", "x", "ABCDEF", "abcdef"),
        ("binary", "truncate(1, x)", "AB", "ab"),
        ("fixed[2]", "bucket(4, x)", 3, 3),
        ("uuid", "bucket(4, x)", 3, 3),
        ("float", "x", 0.1, A_TENTH),
        ("float", "x", "NaN", "NaN"),
        ("double", "x", 0.1, 0.1),
        ("double", "x", 1, 1.0),
        ("decimal(9, 2)", "x", "1E+1", "10.00"),
        ("timestamptz", "x", "2024-01-01T01:00:00.500+01:00", "2024-01-01T00:00:00.5+00:00"),
        ("timestamp", "x", "2024-01-01T00:00", "2024-01-01T00:00:00"),
        ("long", "x", None, None),
    ],
)
def test_a_value_has_one_spelling(type_: str, transform: str, spelled: Any, canonical: Any) -> None:
    schema, _ = schemas.schema_from({"x": type_})
    spec, _ = partitions.partition_spec([transform], schema)
    made = partitions.canonical_partition(schema, spec, {1000: spelled})
    assert made == {1000: canonical} and type(made[1000]) is type(canonical)
    assert partitions.canonical_partition(schema, spec, made) == made


def test_a_float_is_in_the_same_partition_after_its_column_is_widened() -> None:
    spec, _ = partitions.partition_spec(["x"], schemas.schema_from({"x": "float"})[0])
    narrow, wide = (schemas.schema_from({"x": type_})[0] for type_ in ("float", "double"))
    made = partitions.canonical_partition(narrow, spec, {1000: 0.1})
    assert partitions.canonical_partition(wide, spec, made) == made
    assert partitions.partition_value("identity", "float", 0.1) == A_TENTH


@pytest.mark.parametrize("given_", [{}, {1000: 1, 1001: 2}, {1001: 1}, {1000: "a"}, {1000: 2**31}])
def test_a_partition_that_is_none_of_its_spec_is_refused_by_name(given_: Any) -> None:
    schema, _ = schemas.schema_from({"x": "int"})
    spec, _ = partitions.partition_spec(["x"], schema)
    with pytest.raises(FileRefused, match=r"'x'|x \(1000\)") as caught:
        partitions.canonical_partition(schema, spec, given_)
    assert caught.value.reason == "wrong_partition"


def test_a_number_that_no_float_is_near_to_is_none() -> None:
    for value in (1e39, -1e39):
        with pytest.raises(InvalidInput, match="is no float"):
            partitions.partition_value("identity", "float", value)


PRIMITIVES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal(9, 2)",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "string",
]
PRIMITIVES += ["binary", "timestamp_ns"]


@pytest.mark.parametrize("type_", [*PRIMITIVES, "uuid", "fixed[3]"])
@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[4]", "truncate[2]"])
@given(data=st.data())
def test_a_partition_is_read_as_its_path_shows_it(type_: str, transform: str, data: st.DataObject) -> None:
    if not transforms.applies(transform, type_) or (transform == "identity" and type_ in ("uuid", "fixed[3]")):
        return
    schema, _ = schemas.schema_from({"a=/b": type_}, 3)
    spec, _ = partitions.partition_spec([{"source-id": 1, "transform": transform, "name": "p/ =ü"}], schema)
    raw = data.draw(raws(type_))
    try:
        result = transforms.transform_value(transform, type_, raw)
        transforms.check_held(transform, type_, result)
    except InvalidInput:
        return
    partition = {1000: values.to_json(transforms.result_type(transform, type_), result)}
    path = partitions.partition_path(schema, spec, partition)
    if partition[1000] in (None, "null") and type_ == "string" and transform in ("identity", "truncate[2]"):
        with pytest.raises(InvalidInput, match=r"may mean null or the text 'null'.*a dict"):
            partitions.partition_from_path(schema, spec, path)
    else:
        assert partition_key(partitions.partition_from_path(schema, spec, path)) == partition_key(partition)


def raws(type_: str) -> st.SearchStrategy[Any]:
    bits = 31 if type_ in ("int", "date") else 63
    whole = st.integers(-(2**bits), 2**bits - 1)
    return st.none() | {
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "decimal(9, 2)": st.integers(-(10**9) + 1, 10**9 - 1),
        "time": st.integers(0, 86_399_999_999),
        "string": st.text() | st.just("null"),
        "binary": st.binary(),
        "uuid": st.binary(min_size=16, max_size=16),
        "fixed[3]": st.binary(min_size=3, max_size=3),
    }.get(type_, whole)


@pytest.mark.parametrize(
    ("transform", "path"),
    [("day(day)", "day_day=2026-13-01"), ("day(day)", "day_day=2026-01-01Z"), ("month(day)", "day_month=2026-01-01"),
     ("year(day)", "day_year=26"), ("hour(ts)", "ts_hour=2026-01-01-24"), ("bucket(4, id)", "id_bucket=4"),
     ("id", "id=1.0"), ("id", "id=1/x=2"), ("id", "1"), ("id", ""), ("flag", "flag=True")],
)  # fmt: skip
def test_a_path_that_shows_none_of_the_partitions_is_refused_by_name(transform: str, path: str) -> None:
    spec, _ = partitions.partition_spec([transform], SCHEMA)
    with pytest.raises(InvalidInput) as caught:
        partitions.partition_from_path(SCHEMA, spec, path)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize("type_", ["uuid", "fixed[3]"])
def test_partitions_of_values_that_engines_cannot_read_are_refused_with_the_way_out(type_: str) -> None:
    schema, _ = schemas.schema_from({"x": type_, "s": f"struct<y: {type_}>"})
    for column in ("x", "s.y"):
        with pytest.raises(InvalidSchema, match=r"partition by bucket\(16, [xsy.]+\)$") as caught:
            partitions.partition_spec([column], schema)
        advised = str(caught.value).rpartition("partition by ")[2]
        assert partitions.partition_spec([advised], schema)[0]["fields"][0]["transform"] == "bucket[16]"
        with pytest.raises(InvalidSchema, match="partition by bucket"):
            partitions.evolved_spec([column], schema, [], 999)
    old = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "x"}
    spec, _ = partitions.evolved_spec(["x", "bucket(4, x)"], schema, [{"spec-id": 0, "fields": [old]}], 1000)
    assert spec["fields"][0] == old, "a table that has such partitions can still change"
