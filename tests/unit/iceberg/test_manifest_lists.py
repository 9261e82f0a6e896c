"""Manifest lists: what is written is read again, whoever wrote it."""

from __future__ import annotations

import pytest

from lakeward.iceberg import avro, manifest_lists, manifests, partitions, schemas

SCHEMA, _ = schemas.schema_from({"s": "string", "n": "long"})
SPEC, _ = partitions.partition_spec(["s"], SCHEMA)


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list_is_read_as_it_was_written(version: int) -> None:
    layout = manifests.layout(version, SCHEMA, SPEC)
    rows = [manifest_lists.manifest_file(manifests.Written(layout), f"/m{n}", n, 7, 3) for n in range(3)]
    rows[0]["partitions"] = [{"contains_null": True, "contains_nan": None, "lower_bound": b"a", "upper_bound": None}]
    if version == 3:
        assert manifest_lists.assign_row_ids(rows, 40) == 40
    data = manifest_lists.manifest_list_bytes(version, rows, 7, None, 3, 40 if version == 3 else None)
    found = manifest_lists.read_manifest_list(data)
    assert [{k: v for k, v in r.items() if version == 3 or k != "first_row_id"} for r in rows] == found


def test_names_of_another_writer_do_not_matter_only_field_ids_do() -> None:
    layout = manifests.layout(2, SCHEMA, SPEC)
    rows = [manifest_lists.manifest_file(manifests.Written(layout), "/m", 1, 7, 3)]
    container = avro.read_container(manifest_lists.manifest_list_bytes(2, rows, 7, None, 3), {})
    schema = container.schema
    for field in schema["fields"]:
        field["name"] = field["name"].replace("files_count", "data_files_count")
    encode = avro.encoder(avro.canonical(schema, {}))
    renamed = [{k.replace("files_count", "data_files_count"): v for k, v in r.items()} for r in rows]
    other = avro.write_container(schema, {}, [encode(r) for r in renamed])
    assert manifest_lists.read_manifest_list(other)[0]["added_files_count"] == 0
