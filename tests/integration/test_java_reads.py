"""Everything that Lakeward writes is read by Iceberg's own Java library, and what that refuses is refused at the door."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakeward import Lake
from lakeward.errors import InvalidInput
from lakeward.iceberg import checks, evolution, metadata, partitions, schemas
from lakeward.tables.records import properties
from lakeward.tables.records.tables import Document, TableMetadata
from tests.support.java import Judge
from tests.unit.iceberg.tables import NOW, NOW_MS, table_record


@pytest.fixture(scope="module")
def judge(spark_process: SparkSession) -> Judge:
    return Judge(spark_process)


# What a person may do ---------------------------------------------------------------------------------------------------
TYPES = [
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed[3]",
    "binary", "decimal(9, 2)", "list<int>", "map<string, double>", "struct<a: int, b: list<struct<c: string>>>",
]  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "boolean": True, "int": 1, "long": 1, "float": 1, "double": 1.5, "date": "2026-01-01", "time": "10:00",
    "timestamp": "2026-01-01T00:00", "timestamptz": "2026-01-01T00:00:00+01:00", "string": "a", "decimal(9, 2)": "1",
    "uuid": "F79C3E09-677C-4BBD-A479-3F349CB785E7", "binary": "00FF", "fixed[3]": "000000",
    "timestamp_ns": "2026-01-01T00:00:00.123456789", "timestamptz_ns": "2026-01-01T00:00:00Z",
}  # fmt: skip


def test_tables_of_every_type_and_every_change_are_read(lake: Lake, judge: Judge, tmp_path: Path) -> None:
    for version in (2, 3):
        name = f"n.types{version}"
        lake.create_table(name, {f"c{i}": type_ for i, type_ in enumerate(TYPES)}, format_version=version)
        lake.append(name, [{"c2": i} for i in range(3)])
        lake.flush(name)
        lake.create_tag(name, "t", max_age=timedelta(days=1))
        lake.create_branch(name, "b", keep=2**31 - 1, max_age=timedelta.max, max_snapshot_age=timedelta(days=1))
        lake.widen_column(name, "c1", "long")
        lake.rename_column(name, "c5", "day")
        lake.set_partition_spec(name, ["bucket(4, c2)", "month(day)", "truncate(2, c9)"])
        lake.set_sort_order(name, ["day(c7) desc nulls first", "c2"])
        lake.append(name, [{"c2": 5, "day": date(2026, 1, 1), "c9": "text"}])
        lake.set_sort_order(name, [])
        lake.set_partition_spec(name, [])
        lake.retire_set_aside(name)
        lake.add_column(name, ("more.or.less",), "decimal(38, 0)")
        lake.flush(name)
        lake.set_properties(name, {"write.metadata.compression-codec": "none", "owner": "ann"})
        lake.drop_column(name, "c16")
        lake.rollback_metadata(name, lake.table(name).version - 1)
        lake.append(name, [{"c2": 6}])
        location = lake.flush(name).metadata_location
        lake.rollback(name, lake.snapshots(name)[0].snapshot_id)
        lake.expire_snapshots(name, keep=1)
        assert judge.unread(location) is None
    assert len(list((tmp_path / "warehouse").rglob("*.metadata.json"))) > 10
    assert judge.refused_below(tmp_path / "warehouse") == {}


def test_defaults_are_written_in_the_form_that_java_reads(judge: Judge) -> None:
    fields = [
        {"id": i, "name": f"c{i}", "type": type_, "required": False, "initial-default": value, "write-default": value}
        for i, (type_, value) in enumerate(DEFAULTS.items(), 1)
    ]
    schema, last = schemas.schema_from({"type": "struct", "fields": fields}, 3)
    assert judge.refusal(document_of([version_of(schema)], 3, last)) is None


def test_every_property_that_iceberg_knows_is_declared_or_refused(judge: Judge) -> None:
    values = ("DEFAULT", "_NONE", "_HASH", "_RANGE")
    known = judge.table_properties()
    names = {
        text
        for constant, text in known.items()
        if isinstance(text, str)
        and ("." in text or text in properties._REFUSED)
        and not any(v in constant for v in values)
    } | {known["DEFAULT_FILE_FORMAT"], known["DELETE_DEFAULT_FILE_FORMAT"], known["DEFAULT_WRITE_METRICS_MODE"]}
    assert len(names) > 100
    unknown = {name for name in names if properties.find(name) is None and name not in properties._REFUSED}
    assert unknown == set()


def test_the_reserved_names_are_those_of_java(judge: Judge) -> None:
    constants = judge.constants("org.apache.iceberg.MetadataColumns")
    fields = [value for value in constants.values() if not isinstance(value, str | int)]
    names = {field.name() for field in fields} | {constants["PARTITION_COLUMN_NAME"]}
    assert {name for name in names if name.startswith("_")} == checks.RESERVED_COLUMNS
    assert names - checks.RESERVED_COLUMNS == {"file_path", "pos"}  # of files of deletes alone


# Anything that a document may say ---------------------------------------------------------------------------------------
def version_of(schema: Document, spec: Document | None = None, order: Document | None = None) -> TableMetadata:
    spec, order = spec or {"spec-id": 0, "fields": []}, order or {"order-id": 0, "fields": []}
    return TableMetadata(
        table_id=1, metadata_version=1, schema_version=schema["schema-id"], schema=schema, spec_id=spec["spec-id"],
        partition_by=spec, sort_order_id=order["order-id"], sort_by=order, properties={}, storage_engine="local",
        engine_config={}, format="parquet", compression="zstd", change="create", created_at=NOW,
    )  # fmt: skip


def document_of(versions: list[TableMetadata], format_version: int, last: int) -> bytes:
    document = metadata.new_metadata(table_record("file:///t", last, 999, format_version), versions[0], NOW_MS)
    for version in versions[1:]:
        document = metadata.apply_version(document, version, NOW_MS)
    return metadata.encode(document)


NAMES = ["id", "ts", "ts_day", "id_bucket", "s", "s.x", "x", "ID", "_file", "p", "ts_null", "id_trunc"]
ANY_TYPE = st.sampled_from(
    [
        *DEFAULTS,
        "variant",
        "variantfoo",
        "unknown",
        "geometry",
        "geography(a, b)",
        "geometry()",
        "timestamp_nsx",
        "fixed[0]",
    ]
)
ANY_VALUE: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, "abc", 3_000_000_000, 1.5, 1e39, "NaN", True, "2026-01-01", "00", "1.234", {}, [1]]
)


@st.composite
def a_field(draw: st.DrawFn, depth: int = 1) -> Document:
    type_: Any = draw(ANY_TYPE)
    if depth and draw(st.integers(0, 4)) == 0:
        inner = [draw(a_field(0)) for _ in range(draw(st.integers(1, 2)))]
        struct = {"type": "struct", "fields": inner}
        listed = {
            "type": "list",
            "element-id": draw(st.integers(1, 9)),
            "element": struct,
            "element-required": draw(st.booleans()),
        }
        type_ = draw(st.sampled_from([struct, listed]))
    field = {
        "id": draw(st.integers(1, 6)), "name": draw(st.sampled_from(NAMES)), "type": type_, "required": draw(st.booleans()),
    }  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        field[draw(st.sampled_from(["initial-default", "write-default"]))] = draw(ANY_VALUE)
    return field


TERMS = st.sampled_from(
    [
        "id",
        "ts",
        "day(ts)",
        "bucket(4, id)",
        "truncate(2, id)",
        "void(id)",
        "void(ts)",
        "year(ts)",
        "p",
        "bucket(0, id)",
        "x",
        "s.x",
    ]
)
CHANGES = st.sampled_from(["add", "rename", "drop", "widen", "spec", "order"])


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), format_version=st.sampled_from([2, 3]))
def test_whatever_is_accepted_is_read(judge: Judge, data: st.DataObject, format_version: int) -> None:
    fields = data.draw(st.lists(a_field(), min_size=1, max_size=4))
    source: dict[str, Any] = {"type": "struct", "fields": fields}
    if data.draw(st.integers(0, 3)) == 0:
        source["identifier-field-ids"] = data.draw(st.lists(st.integers(1, 7), max_size=2))
    terms, sorts = data.draw(st.lists(TERMS, max_size=2)), data.draw(st.lists(TERMS, max_size=1))
    try:
        schema, last = schemas.schema_from(source, format_version)
        spec, last_partition = partitions.partition_spec(terms, schema)
        versions = [version_of(schema, spec, partitions.sort_order(sorts, schema, 1))]
    except InvalidInput:
        return
    for number, change in enumerate(data.draw(st.lists(CHANGES, max_size=4)), 1):
        name, other, text = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NAMES)), data.draw(TERMS)
        now = versions[-1]
        schema, spec, order = now.schema, now.partition_by, now.sort_by
        try:
            if change == "add":
                schema, last = evolution.add_column(schema, last, (name,), "int", format_version=format_version)
            elif change == "rename":
                schema = evolution.rename_column(schema, (name,), other)
            elif change == "drop":
                schema = evolution.drop_column(schema, (name,), [spec], [order])
            elif change == "widen":
                schema = evolution.widen_column(schema, (name,), "long")
            elif change == "spec":
                earlier = [version.partition_by for version in versions]
                spec, last_partition = partitions.evolved_spec([text], schema, earlier, last_partition)
            else:
                order = partitions.evolved_order([text], schema, [version.sort_by for version in versions])
        except InvalidInput:
            continue
        specs = [version.partition_by for version in versions]
        if not checks.problems(schema, spec, order, specs, format_version):
            numbered = schema if schema is now.schema else schemas.with_schema_id(schema, number)
            versions.append(version_of(numbered, spec, order))
    why = judge.refusal(document_of(versions, format_version, last))
    assert why is None, (why, [(version.schema, version.partition_by, version.sort_by) for version in versions])
