"""Schemas: what they are made from, what is refused, and how they change."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from lakeward.errors import ColumnNotFound, InvalidSchema, LakewardError
from lakeward.iceberg import evolution, schemas
from lakeward.tables.records.tables import Document

NESTED = {
    "id": "long not null",
    "tags": "list<string>",
    "where": "struct<lat: double, lon: double, names: map<string, struct<a: int>>>",
    "amount": "decimal(9,2)",
}


def nested() -> tuple[Document, int]:
    return schemas.schema_from(NESTED)


def test_fresh_ids_go_to_all_top_level_columns_first() -> None:
    document, last = nested()
    ids = {c.full_name: c.field_id for c in schemas.columns(document)}
    assert ids == {
        "id": 1,
        "tags": 2,
        "where": 3,
        "amount": 4,
        "tags.element": 5,
        "where.lat": 6,
        "where.lon": 7,
        "where.names": 8,
        "where.names.key": 9,
        "where.names.value": 10,
        "where.names.value.a": 11,
    }
    assert last == 11


def test_pyiceberg_reads_the_document_and_writes_the_same_one() -> None:
    document, last = nested()
    model = schemas.to_pyiceberg(document)
    assert model.highest_field_id == last
    assert schemas.same_schema(json.loads(model.model_dump_json()), document)


def test_the_arrow_schema_has_the_ids_that_pyiceberg_gives_it() -> None:
    document, _ = nested()
    ours = schemas.to_arrow(document)
    theirs = schema_to_pyarrow(schemas.to_pyiceberg(document))

    def ids(field: pa.Field) -> Any:
        inner = [field.type.field(i) for i in range(field.type.num_fields)] if not pa.types.is_map(field.type) else []
        if pa.types.is_map(field.type):
            inner = [field.type.key_field, field.type.item_field]
        return field.metadata[b"PARQUET:field_id"], field.nullable, [ids(f) for f in inner]

    assert [ids(f) for f in ours] == [ids(f) for f in theirs]


ARROW_TYPES = [
    (pa.bool_(), "boolean"),
    (pa.int8(), "int"),
    (pa.int16(), "int"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.uint8(), "int"),
    (pa.uint16(), "int"),
    (pa.uint32(), "long"),
    (pa.float16(), "float"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.date32(), "date"),
    (pa.date64(), "date"),
    (pa.time32("ms"), "time"),
    (pa.time64("us"), "time"),
    (pa.timestamp("s"), "timestamp"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", "Europe/Berlin"), "timestamptz"),
    (pa.string(), "string"),
    (pa.large_string(), "string"),
    (pa.string_view(), "string"),
    (pa.binary(), "binary"),
    (pa.large_binary(), "binary"),
    (pa.binary(7), "fixed[7]"),
    (pa.uuid(), "uuid"),
    (pa.decimal128(38, 4), "decimal(38, 4)"),
    (pa.decimal256(20, 4), "decimal(20, 4)"),
    (pa.dictionary(pa.int8(), pa.large_string()), "string"),
]


@pytest.mark.parametrize("arrow, expected", ARROW_TYPES, ids=str)
def test_an_arrow_type_becomes_the_iceberg_type_that_holds_it(arrow: pa.DataType, expected: str) -> None:
    assert schemas.parse_type(arrow) == expected
    listed = schemas.parse_type(pa.large_list(arrow))
    assert isinstance(listed, dict)
    assert listed["element"] == expected


@pytest.mark.parametrize(
    "arrow, way",
    [
        (pa.timestamp("ns"), "timestamp('us')"),
        (pa.timestamp("ns", "UTC"), "timestamp('us', tz)"),
        (pa.time64("ns"), "time64('us')"),
        (pa.uint64(), "decimal128(20, 0)"),
        (pa.decimal256(39, 2), "precision of at most 38"),
        (pa.decimal128(5, -2), "scale"),
        (pa.duration("s"), "cast"),
        (pa.null(), "cast"),
        (pa.struct([]), "without fields"),
    ],
    ids=str,
)
def test_an_arrow_type_that_would_lose_something_is_refused_with_the_column_and_the_way_out(
    arrow: pa.DataType, way: str
) -> None:
    with pytest.raises(InvalidSchema) as error:
        schemas.schema_from(pa.schema([("fine", pa.int32()), ("at", arrow)]))
    assert "'at'" in str(error.value)
    assert way in str(error.value)


def test_nanoseconds_are_held_from_format_version_3_on() -> None:
    document, _ = schemas.schema_from(pa.schema([("t", pa.timestamp("ns", "UTC"))]), format_version=3)
    assert document["fields"][0]["type"] == "timestamptz_ns"
    with pytest.raises(InvalidSchema, match="format version 3"):
        schemas.schema_from({"t": "timestamp_ns"})


def test_field_ids_and_nullability_of_arrow_are_dropped_and_kept() -> None:
    field = pa.field("x", pa.int32(), nullable=False, metadata={b"PARQUET:field_id": b"77", b"doc": b"what"})
    document, last = schemas.schema_from(pa.schema([field]))
    assert document["fields"] == [{"id": 1, "name": "x", "required": True, "type": "int", "doc": "what"}]
    assert last == 1


class SparkStruct:
    """Stands where a StructType does: the text is what PySpark 4.1's StructType.json() gives."""

    def json(self) -> str:
        return json.dumps(
            {
                "type": "struct",
                "fields": [
                    {"name": "a", "type": "integer", "nullable": False, "metadata": {"comment": "first"}},
                    {"name": "b", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
                    {"name": "c", "type": "timestamp", "nullable": True, "metadata": {}},
                    {"name": "d", "type": "timestamp_ntz", "nullable": True, "metadata": {}},
                    {
                        "name": "e",
                        "type": {"type": "array", "elementType": "short", "containsNull": False},
                        "nullable": True,
                        "metadata": {},
                    },
                    {
                        "name": "f",
                        "type": {
                            "type": "map",
                            "keyType": "string",
                            "valueType": "varchar(4)",
                            "valueContainsNull": True,
                        },
                        "nullable": True,
                        "metadata": {},
                    },
                ],
            }
        )


def test_a_spark_schema_keeps_its_meaning() -> None:
    document, last = schemas.schema_from(SparkStruct())
    assert [f["type"] for f in document["fields"]] == [
        "int",
        "decimal(10, 2)",
        "timestamptz",
        "timestamp",
        {"type": "list", "element-id": 7, "element": "int", "element-required": True},
        {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "string", "value-required": False},
    ]
    assert document["fields"][0]["required"]
    assert document["fields"][0]["doc"] == "first"
    assert last == 9


def test_a_pyiceberg_schema_and_its_identifier_get_fresh_ids() -> None:
    inner = StructType(NestedField(30, "x", StringType()))
    source = Schema(
        NestedField(10, "a", LongType(), required=True),
        NestedField(20, "b", ListType(25, inner, False)),
        identifier_field_ids=[10],
    )
    document, last = schemas.schema_from(source)
    assert [c.field_id for c in schemas.columns(document)] == [1, 2, 3, 4]
    assert document["identifier-field-ids"] == [1]
    assert last == 4
    again, _ = schemas.schema_from(document)
    assert again == document


@pytest.mark.parametrize(
    "source",
    [
        {"a": "long", "A": "long"},
        [("a", "int"), ("a", "int")],
        [("a.b", "int"), ("a", "struct<b: int>")],
        {"": "int"},
        {},
        {"a": "varint"},
        {"a": "decimal(39, 2)"},
        {"a": "list<int"},
        {"a": "long long"},
        {"a": "fixed[0]"},
        {"a": "struct<>"},
        {"a": "timestamp_ns"},
        {"a": ""},
        "long",
        7,
        [("a",)],
    ],
    ids=str,
)
def test_a_schema_that_no_engine_could_read_is_refused(source: Any) -> None:
    with pytest.raises(InvalidSchema):
        schemas.schema_from(source)


@pytest.mark.parametrize(
    "text, type_",
    [
        ("BIGINT", "long"),
        ("decimal(9,2)", "decimal(9, 2)"),
        ("numeric(5)", "decimal(5, 0)"),
        ("varchar(10)", "string"),
        ("fixed(4)", "fixed[4]"),
        (" double ", "double"),
    ],
)
def test_types_are_read_from_usual_text(text: str, type_: str) -> None:
    assert schemas.parse_type(text) == type_


def test_names_with_any_characters_are_kept() -> None:
    names = ["a b", "a.b", 'q"uote', "per%cent", "ünï", "`tick`", "/", "😀", "new\nline"]
    document, _ = schemas.schema_from(dict.fromkeys(names, "int"))
    assert [c.name for c in schemas.columns(document)] == names
    struct, _ = schemas.schema_from({"s": "struct<`a b``c`: int not null>"})
    assert struct["fields"][0]["type"]["fields"][0]["name"] == "a b`c"


# Evolution -------------------------------------------------------------------------------------------------------------
def test_a_column_can_be_added_inside_structs_lists_and_maps() -> None:
    document, last = nested()
    document, last = evolution.add_column(document, last, "where.alt", "struct<m: int>")
    document, last = evolution.add_column(document, last, "where.names.b", "long")
    found = {c.full_name: c.field_id for c in schemas.columns(document)}
    assert (found["where.alt"], found["where.alt.m"], found["where.names.value.b"], last) == (12, 13, 14, 14)
    with pytest.raises(InvalidSchema, match="no struct"):
        evolution.add_column(document, last, "tags.x", "int")
    with pytest.raises(ColumnNotFound, match=r"\('no\.such',\)"):
        evolution.add_column(document, last, "no.such", "int")
    assert evolution.find_column(evolution.add_column(document, last, ("no.such",), "int")[0], "no.such").field_id == 15


def test_what_iceberg_forbids_is_refused() -> None:
    document, last = nested()
    with pytest.raises(InvalidSchema, match="case alone"):
        evolution.add_column(document, last, "ID", "int")
    with pytest.raises(InvalidSchema, match="case alone"):
        evolution.rename_column(document, "tags", "Id")
    with pytest.raises(InvalidSchema, match="partition"):
        evolution.drop_column(document, "id", specs=[{"fields": [{"source-id": 1}]}])
    with pytest.raises(InvalidSchema, match="sort order"):
        evolution.drop_column(document, "where", sort_orders=[{"fields": [{"source-id": 7}]}])
    with pytest.raises(InvalidSchema, match="part of a list"):
        evolution.drop_column(document, "tags.element")
    with pytest.raises(InvalidSchema, match="cannot become"):
        evolution.widen_column(document, "id", "int")
    with pytest.raises(InvalidSchema, match="cannot become"):
        evolution.widen_column(document, "amount", "decimal(10, 3)")
    with pytest.raises(InvalidSchema, match="key of a map"):
        map_of_int, _ = schemas.schema_from({"m": "map<int, int>"})
        evolution.widen_column(map_of_int, "m.key", "long")
    with pytest.raises(ColumnNotFound, match="did you mean id"):
        evolution.drop_column(document, "Id")
    with pytest.raises(InvalidSchema, match="only one"):
        evolution.drop_column(schemas.schema_from({"a": "int"})[0], "a")


def test_columns_widen_and_move() -> None:
    document, _ = schemas.schema_from({"a": "int", "b": "float", "c": "decimal(4, 2)", "d": "list<int>"})
    for path, type_ in (("a", "long"), ("b", "double"), ("c", "decimal(9,2)"), ("d.element", "long")):
        document = evolution.widen_column(document, path, type_)
    assert [c.type for c in schemas.columns(document) if isinstance(c.type, str)] == [
        "long",
        "double",
        "decimal(9, 2)",
        "long",
    ]
    document = evolution.move_column(document, "c", first=True)
    document = evolution.move_column(document, "a", after="b")
    document = evolution.move_column(document, "d", before="b")
    assert [f["name"] for f in document["fields"]] == ["c", "d", "b", "a"]


def test_a_change_leaves_the_document_it_was_given_alone() -> None:
    document, last = nested()
    before = json.dumps(document)
    evolution.add_column(document, last, "where.x", "int")
    evolution.drop_column(document, "where.lat")
    evolution.rename_column(document, "where", "place")
    evolution.move_column(document, "where", first=True)
    assert json.dumps(document) == before


_TYPES = st.sampled_from(
    ["int", "float", "string", "decimal(5, 2)", "list<int>", "map<string, int>", "struct<p: int, q: list<float>>"]
)
_NAMES = st.text(st.sampled_from("abAB. é"), min_size=1, max_size=3)
_STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "rename", "widen", "move"]), st.integers(0, 50), _NAMES, _TYPES),
    max_size=25,
)


@given(_STEPS)
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_changes_keeps_the_schema_valid_and_never_gives_an_id_twice(
    steps: list[tuple[str, int, str, str]],
) -> None:
    document, last = nested()
    ever = {c.field_id: c for c in schemas.columns(document)}
    for what, which, name, type_ in steps:
        there = schemas.columns(document)
        column = there[which % len(there)]
        try:
            if what == "add":
                path = (*column.path, name) if which % 2 else (name,)
                document, last = evolution.add_column(document, last, path, type_)
            elif what == "drop":
                document = evolution.drop_column(document, column.path)
            elif what == "rename":
                document = evolution.rename_column(document, column.path, name)
            elif what == "widen":
                wide = {"int": "long", "float": "double", "decimal(5, 2)": "decimal(7, 2)"}.get(
                    str(column.type), "long"
                )
                document = evolution.widen_column(document, column.path, wide)
            else:
                document = evolution.move_column(document, column.path, first=True)
        except LakewardError:
            continue
        now = {c.field_id: c for c in schemas.columns(document)}
        assert len(now) == len(schemas.columns(document))
        for new in now.keys() - {c.field_id for c in there}:
            assert new not in ever
        assert max(now) <= last
        ever |= now
        model = schemas.to_pyiceberg(document)
        assert {model.find_column_name(i): i for i in now} == {c.full_name: c.field_id for c in now.values()}
        pa.schema(schemas.to_arrow(document))


def test_a_schema_of_2000_columns_is_made_and_changed() -> None:
    document, last = schemas.schema_from({f"c{i}": "decimal(9, 2)" for i in range(2000)})
    document, last = evolution.add_column(document, last, "more", "int")
    assert (last, len(schemas.columns(document))) == (2001, 2001)
