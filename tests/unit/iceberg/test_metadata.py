"""Table metadata: versions applied, logs, and what leaves it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from lakeward.errors import InvalidSchema, StorageError
from lakeward.iceberg import evolution, metadata, partitions, schemas
from tests.unit.iceberg.tables import NOW_MS, LocalTable, registered, version_record


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_accepts_the_documents_as_they_grow(tmp_path: Path, version: int) -> None:
    table = LocalTable(tmp_path, {"a": "int", "ts": "timestamptz"}, ["day(ts)"], ["a desc"], version)
    for number in range(3):
        model = TableMetadataUtil.parse_raw(metadata.encode(table.document).decode())
        assert model.format_version == version
        assert str(model.table_uuid) == table.record.table_uuid
        assert len(model.snapshots) == number
        assert [s.snapshot_id for s in model.snapshots] == [e.snapshot_id for e in model.snapshot_log]
        table.build([registered(f"/x/{number}", partition_key='{"1000":"2026-01-01"}')])


def test_ids_are_those_that_the_version_gives_and_equal_documents_are_not_doubled(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    schema, last = evolution.add_column(table.schema, 1, "b", "int")
    spec, _ = partitions.partition_spec(["b"], schema, spec_id=4, last_partition_id=1006)
    order = partitions.sort_order(["b"], schema, 3)
    version = version_record(schemas.with_schema_id(schema, 7), spec, order, properties={"k": "v"})
    changed = metadata.apply_version(table.document, version, NOW_MS + 1)
    assert [s["schema-id"] for s in changed["schemas"]] == [0, 7]
    assert (changed["current-schema-id"], changed["default-spec-id"], changed["default-sort-order-id"]) == (7, 4, 3)
    assert (changed["last-column-id"], changed["last-partition-id"], changed["properties"]) == (last, 1007, {"k": "v"})
    assert metadata.apply_version(changed, version, NOW_MS) == changed
    back = metadata.apply_version(changed, version_record(table.schema, table.spec, table.order), NOW_MS)
    assert (back["current-schema-id"], len(back["schemas"]), back["last-column-id"]) == (0, 2, last)
    TableMetadataUtil.parse_obj(back)


def test_an_id_that_means_something_else_is_refused(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    other, _ = schemas.schema_from({"a": "long"})
    with pytest.raises(InvalidSchema, match="schema-id 0"):
        metadata.apply_version(table.document, version_record(other, table.spec, table.order), NOW_MS)
    sorted_by_a = {**partitions.sort_order(["a"], table.schema), "order-id": 0}
    with pytest.raises(InvalidSchema, match="sort order 0"):
        metadata.apply_version(table.document, version_record(table.schema, table.spec, sorted_by_a), NOW_MS)


def test_the_metadata_log_keeps_its_newest_files_and_names_the_rest(tmp_path: Path) -> None:
    document = LocalTable(tmp_path, {"a": "int"}).document
    dropped: list[str] = []
    for number in range(12):
        document, gone = metadata.log_metadata(document, f"m{number}", NOW_MS + number, keep=10)
        dropped += gone
    assert dropped == ["m0", "m1"]
    assert [e["metadata-file"] for e in document["metadata-log"]] == [f"m{n}" for n in range(2, 12)]


def test_old_snapshots_leave_but_for_the_current_one_and_those_that_have_a_name(tmp_path: Path) -> None:
    table = LocalTable(tmp_path, {"a": "int"})
    for number in range(6):
        table.build([registered(f"/x/{number}")], timestamp_ms=NOW_MS + number)
    ids = [s["snapshot-id"] for s in table.document["snapshots"]]
    table.document["refs"]["tag"] = {"snapshot-id": ids[1], "type": "tag"}
    kept, dropped = metadata.trim_snapshots(table.document, keep=3)
    assert [s["snapshot-id"] for s in dropped] == [ids[0], ids[2]]
    assert [s["snapshot-id"] for s in kept["snapshots"]] == [ids[1], *ids[3:]]
    assert [e["snapshot-id"] for e in kept["snapshot-log"]] == ids[3:]
    TableMetadataUtil.parse_obj(kept)
    assert metadata.trim_snapshots(kept, keep=4) == (kept, [])
    table.document = kept
    assert len(list(table.pyiceberg().scan().plan_files())) == 6
    only, _ = metadata.trim_snapshots(kept, keep=0)
    assert [s["snapshot-id"] for s in only["snapshots"]] == [ids[1], ids[5]]


def test_metadata_files_are_read_compressed_or_not_and_damage_is_named(tmp_path: Path) -> None:
    document = LocalTable(tmp_path, {"a b": "int"}).document
    data = metadata.encode(document)
    assert metadata.decode(data) == document
    assert metadata.decode(gzip.compress(data)) == document
    for broken in (data[:-1], b"", b"[]", gzip.compress(data)[:-3]):
        with pytest.raises(StorageError):
            metadata.decode(broken)
    assert metadata.metadata_file_name(12).startswith("00012-")
