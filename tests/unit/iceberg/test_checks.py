"""What Iceberg's readers refuse is refused when a schema, a partition spec or a sort order is made."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidInput, InvalidSchema
from lakeward.iceberg import checks, partitions, schemas
from lakeward.tables.records.tables import Document


def struct(*fields: dict[str, Any], **more: Any) -> Document:
    numbered = [{"id": i, "required": False, **field} for i, field in enumerate(fields, 1)]
    return {"type": "struct", "fields": numbered, **more}


def column(type_: Any, name: Any = "v", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


REQUIRED = column("long", "id", required=True)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ({"v": "variantfoo"}, "'variantfoo' is not known"),
        ({"v": "timestamp_nsx"}, "'timestamp_nsx' is not known"),
        ({"v": "geometryx"}, "is not known"),
        (struct(column("geography(OGC:CRS84, flat)")), "is not known"),
        (struct(column("fixed[2147483648]")), "is not known"),
        (struct(column("unknown", required=True)), "cannot be required"),
        (struct(column("int", **{"write-default": "abc"})), "default 'abc', which is no int"),
        (struct(column("int", **{"initial-default": 3_000_000_000})), "'3000000000', which is no int"),
        (struct(column("int", **{"initial-default": True})), "which is no int"),
        (struct(column("float", **{"initial-default": 1e39})), r"default '1e\+39', which is no float"),
        (struct(column("float", **{"initial-default": "Infinity"})), "no finite float"),
        (struct(column("double", **{"initial-default": "NaN"})), "no finite double"),
        (struct(column("decimal(4, 2)", **{"initial-default": "123.45"})), "which is no decimal"),
        (struct(column("variant", **{"initial-default": 1})), "such columns cannot have"),
        (struct(column(struct(column("int", "a")), **{"initial-default": {}})), "such columns cannot have"),
        (struct(column(struct(column("int", "a", **{"initial-default": "x"})))), "'a' has the default 'x'"),
        (struct(column("long", "id"), **{"identifier-field-ids": [1]}), "'id' cannot be an identifier field: it is optional"),
        (struct(column("double", required=True), **{"identifier-field-ids": [1]}), "its type is double"),
        (struct(REQUIRED, **{"identifier-field-ids": [9]}), "9 is not the id of one column"),
        (struct(column(struct(column("int", "a", required=True, id=5))), **{"identifier-field-ids": [5]}), "'v', which is optional"),
        (struct(column("int", doc=5)), "doc 5"),
        (struct(column("int", required="false")), "required is 'false'"),
        (struct(column("int", id="1")), "'1' is no whole number"),
        (struct(column("int", "a\0b")), "NUL"),
        *(({name: "int"}, f"'{name}' has a name that Iceberg's readers keep") for name in sorted(checks.RESERVED_COLUMNS)),
        ({"_FILE": "int"}, "'_FILE' has a name that Iceberg's readers keep"),
    ],
)  # fmt: skip
def test_a_schema_that_readers_refuse_is_refused_by_the_name_of_its_column(source: Any, match: str) -> None:
    with pytest.raises(InvalidSchema, match=match):
        schemas.schema_from(source, 3)


def test_a_default_is_kept_in_the_one_form_that_readers_take() -> None:
    given = {
        "float": (1, 1.0),
        "decimal(9, 2)": ("1", "1.00"),
        "timestamptz": ("2026-01-01T01:00+01:00", "2026-01-01T00:00:00+00:00"),
    }
    for type_, (value, kept) in given.items():
        schema, _ = schemas.schema_from(struct(column(type_, **{"write-default": value})), 3)
        assert schema["fields"][0]["write-default"] == kept
        assert type(schema["fields"][0]["write-default"]) is type(kept)


def test_the_types_of_version_3_are_taken_by_their_exact_names() -> None:
    types = [
        "timestamp_ns",
        "timestamptz_ns",
        "variant",
        "unknown",
        "geometry",
        "geometry(srid:4326)",
        "geography(OGC:CRS84, karney)",
    ]
    schema, _ = schemas.schema_from(struct(*(column(type_, f"c{i}") for i, type_ in enumerate(types))), 3)
    assert [field["type"] for field in schema["fields"]] == types


@pytest.mark.parametrize(
    ("field", "match"),
    [
        ({"source-id": 1, "transform": "bucket[4]", "name": ""}, "no name|'id_bucket'"),
        ({"source-id": 1, "transform": "bucket[4]", "name": 5}, "no name"),
        ({"source-id": 1, "transform": "bucket[4]", "field-id": 999}, "field-id 999"),
        ({"source-id": 1, "transform": "bucket[4]", "field-id": "1000"}, "field-id '1000'"),
        ({"source-id": 1, "transform": "bucket[٤]"}, "not known"),
        ({"source-id": 1, "transform": "bucket[2147483648]"}, "bucket by 2147483648 cannot be"),
    ],
)  # fmt: skip
def test_a_partition_field_that_readers_refuse_is_refused(field: dict[str, Any], match: str) -> None:
    schema, _ = schemas.schema_from({"id": "long"})
    if field.get("name") == "":
        assert partitions.partition_spec([field], schema)[0]["fields"][0]["name"] == "id_bucket"
        return
    with pytest.raises(InvalidInput, match=match):
        partitions.partition_spec([field], schema)


def test_two_fields_of_specs_never_share_an_id() -> None:
    schema, _ = schemas.schema_from({"id": "long", "name": "string"})
    first = {"source-id": 1, "field-id": 1000, "name": "a", "transform": "bucket[4]"}
    second = {"source-id": 2, "field-id": 1000, "name": "b", "transform": "identity"}
    order = {"order-id": 0, "fields": []}
    both = {"spec-id": 0, "fields": [first, second]}
    assert "which another field has" in checks.problems(schema, both, order, [], 2)[0]
    later = {"spec-id": 1, "fields": [second]}
    assert "which another field has" in checks.problems(schema, later, order, [{"spec-id": 0, "fields": [first]}], 2)[0]


def test_what_a_reader_of_one_schema_can_make_of_files_of_another() -> None:
    def of(*fields: dict[str, Any]) -> Document:
        return struct(*fields)

    inner = struct(column("int", "a", id=5), column("int", "b", id=6))
    cases: list[tuple[Document, Document, str | None]] = [
        (of(column("long")), of(column("int")), None),
        (of(column("int")), of(column("long")), "'v' is long there, and cannot be read as int"),
        (of(column("int", "renamed")), of(column("int")), None),
        (of(column("int"), column("int", "w")), of(column("int")), None),
        (of(column("int"), column("int", "w", required=True)), of(column("int")), "'w' is required, and not there"),
        (of(column("int"), column("int", "w", required=True, **{"initial-default": 1})), of(column("int")), None),
        (of(column("int", required=True)), of(column("int")), "'v' is required, and optional there"),
        (of(column("int")), of(column("int", required=True)), None),
        (of(column(inner)), of(column(struct(column("int", "a", id=5)))), None),
        (
            of(column(struct(column("int", "a", id=5, required=True)))),
            of(column(inner)),
            "'v.a' is required, and optional there",
        ),
        (of(column("int")), of(column(inner)), "'v' is struct there"),
        (of(column("decimal(4, 2)")), of(column("decimal(9, 2)")), "cannot be read"),
    ]
    for now, then, why in cases:
        found = checks.unreadable(now, then)
        assert (found is None) == (why is None) and (why or "") in (found or ""), (now, then, found)
