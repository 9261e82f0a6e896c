"""Manifests: what is written is read again, by this engine and by fastavro alone."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import StorageError
from lakeward.iceberg import avro, entries, manifest_lists, manifests, schemas, values
from lakeward.tables.records.files import FileStatistics, partition_key
from lakeward.tables.records.tables import Document
from tests.unit.iceberg.tables import registered, spec_of

SCHEMA, _ = schemas.schema_from(
    {
        "s": "string",
        "d1": "decimal(9, 2)",
        "d2": "decimal(9, 2)",
        "ü 1": "timestamptz",
        "f": "double",
        "u": "uuid",
        "u2": "uuid",
        "b": "binary",
    }
)
SPEC, _ = spec_of(["s", "d1", "d2", "ü 1", "f", "u", "u2", "b"], SCHEMA)


def document(version: int) -> Document:
    return {"format-version": version, "schemas": [SCHEMA], "current-schema-id": 0, "partition-specs": [SPEC]}


COUNTS = st.dictionaries(st.integers(1, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=5)
BOUNDS = st.dictionaries(st.integers(100, 2**31 - 1), st.binary(max_size=20), max_size=5)
PARTITIONS = st.fixed_dictionaries(
    {
        1000: st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        1001: st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: values.to_json("decimal(9, 2)", n)),
        1002: st.none() | st.just("0.00"),
        1003: st.none() | st.integers(-(2**62), 2**62).map(lambda n: values.to_json("timestamptz", n)),
        1004: st.none() | st.sampled_from(["NaN", "Infinity", "-Infinity", 0.0, -0.0, 1.5]),
        1005: st.none() | st.uuids().map(str),
        1006: st.none() | st.uuids().map(str),
        1007: st.none() | st.binary(max_size=9).map(bytes.hex),
    }
)
FILES = st.lists(
    st.builds(
        lambda partition, statistics, rows, size, offsets: registered(
            "/x",
            partition_key=partition_key(partition),
            statistics=statistics,
            row_count=rows,
            file_size=size,
            split_offsets=offsets,
        ),
        PARTITIONS,
        st.builds(FileStatistics, COUNTS, COUNTS, COUNTS, COUNTS, BOUNDS, BOUNDS),
        st.integers(0, 2**40),
        st.integers(0, 2**63 - 1),
        st.lists(st.integers(0, 2**63 - 1), max_size=3),
    ),
    min_size=1,
    max_size=4,
)

PAIRS = {
    "column_sizes": "column_sizes",
    "value_counts": "value_counts",
    "null_value_counts": "null_counts",
    "nan_value_counts": "nan_counts",
    "lower_bounds": "lower",
    "upper_bounds": "upper",
}


@given(FILES, st.sampled_from([2, 3]))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(files: list[Any], version: int) -> None:
    group = entries.Groups(document(version)).of(0, 0)
    written = manifests.Written(group.layout)
    for file in files:
        record = entries.data_file(file, group)
        written.add(manifests.ADDED, record, manifests.encode_entry(group.layout, manifests.ADDED, record, 77))
    data = manifests.manifest_bytes(written)
    row = manifest_lists.manifest_file(written, "/m", len(data), 77, 5)
    row["first_row_id"] = 1000 if version == 3 else None
    manifest = manifests.read_manifest(data, row)
    next_id = 1000
    for file, entry in zip(files, manifest.entries, strict=True):
        assert (entry["status"], entry["snapshot_id"]) == (manifests.ADDED, 77)
        assert (entry["sequence_number"], entry["file_sequence_number"]) == (5, 5)
        found = entry["data_file"]
        assert (found["record_count"], found["file_size_in_bytes"]) == (file.row_count, file.file_size)
        assert (found["split_offsets"] or []) == file.split_offsets
        for key, name in PAIRS.items():
            assert {p["key"]: p["value"] for p in found[key] or ()} == getattr(file.statistics, name)
        for field, (field_id, _, _, _, kept) in zip(manifest.fields, group.partition_fields, strict=True):
            raw = values.from_avro(field.type, found["partition"][field.key])
            assert values.to_json(kept, raw) == file.partition[field_id]
        if version == 3:
            assert found["first_row_id"] == next_id
            next_id += file.row_count
        assert manifest_lists.may_hold(row, manifest.fields, found["partition"])
    has_uuids = any(file.partition[field_id] is not None for file in files for field_id in (1005, 1006))
    has_nulls = any(value is None for file in files for value in file.partition.values())
    assert (row["partitions"] is None) == has_uuids
    assert has_uuids or any(s["contains_null"] for s in row["partitions"]) == has_nulls

    # Written again under the header that was read, the entries are the same: those that inherited row ids, which are encoded
    # anew, and those whose bytes are taken over.
    layout = manifests.layout_of(version, manifest)
    inherited = {**row, "first_row_id": None}
    for source, takes_bytes in ((manifest, version == 2), (_again(layout, manifest, inherited), True)):
        assert all(("encoded" in entry) is takes_bytes for entry in source.entries)
        repeated = _again(layout, source, inherited)
        assert repr([e["data_file"] for e in repeated.entries]) == repr([e["data_file"] for e in manifest.entries])
        for entry in repeated.entries:
            assert (entry["status"], entry["snapshot_id"]) == (manifests.EXISTING, 78)
            assert (entry["sequence_number"], entry["file_sequence_number"]) == (5, 5)


def _again(layout: manifests.Layout, manifest: manifests.Manifest, row: dict[str, Any]) -> manifests.Manifest:
    again = manifests.Written(layout)
    for entry in manifest.entries:
        encoded = manifests.encode_again(layout, manifest, entry, manifests.EXISTING, 78)
        again.add(manifests.EXISTING, entry["data_file"], encoded, 5)
    assert again.min_sequence == 5
    return manifests.read_manifest(manifests.manifest_bytes(again), row)


def test_bytes_are_taken_over_by_no_manifest_of_another_form() -> None:
    group = entries.Groups(document(2)).of(0, 0)
    record = entries.data_file(registered("/x", partition_key=partition_key(dict.fromkeys(range(1000, 1008)))), group)
    written = manifests.Written(group.layout)
    written.add(manifests.ADDED, record, manifests.encode_entry(group.layout, manifests.ADDED, record, 1))
    data = manifests.manifest_bytes(written)
    manifest = manifests.read_manifest(data, manifest_lists.manifest_file(written, "/m", len(data), 77, 5))
    newer = entries.Groups(document(3)).of(0, 0).layout
    assert manifest.form == group.layout.form != newer.form
    repeated = _again(newer, manifest, {"added_snapshot_id": 1, "sequence_number": 5})
    assert repeated.form == newer.form
    assert repeated.entries[0]["data_file"]["file_path"] == "/x"


@pytest.mark.parametrize("version", [2, 3])
def test_the_header_says_what_the_specification_asks_for(version: int) -> None:
    group = entries.Groups(document(version)).of(0, 0)
    written = manifests.Written(group.layout)
    record = entries.data_file(registered("/x", partition_key=partition_key(dict.fromkeys(range(1000, 1008)))), group)
    written.add(manifests.ADDED, record, manifests.encode_entry(group.layout, manifests.ADDED, record, 1))
    reader = fastavro.reader(io.BytesIO(manifests.manifest_bytes(written)))
    header: Any = reader.metadata
    keys = ("format-version", "content", "schema-id", "partition-spec-id")
    assert [header[k] for k in keys] == [str(version), "data", "0", "0"]
    assert schemas.same_schema(json.loads(header["schema"]), SCHEMA)
    assert json.loads(header["partition-spec"]) == SPEC["fields"]
    [entry] = list(reader)
    assert entry["data_file"]["file_path"] == "/x"  # type: ignore[index,call-overload]


def test_partition_names_that_avro_lacks_are_written_in_its_characters() -> None:
    group = entries.Groups(document(2)).of(0, 0)
    data_file = next(f for f in group.layout.schema["fields"] if f["name"] == "data_file")["type"]
    partition = next(f for f in data_file["fields"] if f["name"] == "partition")["type"]
    named = {f["field-id"]: (f["name"], f.get("iceberg-field-name")) for f in partition["fields"]}
    assert named[1003] == ("_xFC_x201", "ü 1")
    fastavro.parse_schema(group.layout.schema)


def test_a_named_type_that_is_defined_twice_or_referred_to_is_read() -> None:
    fixed = {"type": "fixed", "name": "f", "size": 2}
    fields = [
        {"name": "a", "type": fixed, "field-id": 1},
        {"name": "b", "type": fixed},
        {"name": "c", "type": ["null", "f"]},
    ]
    encode = avro.encoder(avro.canonical({"type": "record", "name": "r", "fields": fields}, {}))
    data = avro.write_container(
        {"type": "record", "name": "r", "fields": fields}, {}, [encode({"a": b"xx", "b": b"yy", "c": b"zz"})]
    )
    assert avro.read_container(data, {1: "A"}).records == [{"A": b"xx", "b": b"yy", "c": b"zz"}]


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy", "null"])
def test_files_of_every_codec_that_iceberg_writes_are_read(codec: str) -> None:
    schema: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "string"}]}
    body = b"".join(avro.encoder(avro.canonical(schema, {}))({"n": str(n) * 9}) for n in range(500))
    plain = avro.write_container(schema, {}, [body])  # one block, counted as one record
    if codec == "zstandard":
        packed = pa.compress(body, codec="zstd", asbytes=True)
    elif codec == "snappy":
        packed = pa.compress(body, codec="snappy", asbytes=True) + zlib.crc32(body).to_bytes(4, "big")
    else:
        compressor = zlib.compressobj(wbits=-15)
        packed = body if codec == "null" else compressor.compress(body) + compressor.flush()
    sync = plain[-16:]
    encode = avro.encoder({"type": "array", "items": {"type": "record", "name": "p", "fields": _PAIR}})
    meta = encode(
        [{"key": "avro.schema", "value": json.dumps(schema).encode()}, {"key": "avro.codec", "value": codec.encode()}]
    )
    data = b"Obj\x01" + meta + sync + avro.long(500) + avro.long(len(packed)) + packed + sync
    assert [r["n"] for r in avro.read_container(data, {}).records] == [str(n) * 9 for n in range(500)]
    if codec in ("deflate", "null"):
        assert len(list(fastavro.reader(io.BytesIO(data)))) == 500


_PAIR = [{"name": "key", "type": "string"}, {"name": "value", "type": "bytes"}]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
@settings(deadline=None)
def test_fastavro_reads_the_numbers_that_are_written(numbers: list[int]) -> None:
    schema: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "long"]}]}
    encode = avro.encoder(avro.canonical(schema, {}))
    data = avro.write_container(schema, {"k": "v"}, [encode({"n": n}) for n in [*numbers, None]])
    assert [r["n"] for r in fastavro.reader(io.BytesIO(data))] == [*numbers, None]  # type: ignore[index,call-overload]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1.5, "1", None])
def test_a_number_that_avro_lacks_is_refused(number: Any) -> None:
    encode = avro.encoder("long")
    with pytest.raises((TypeError, OverflowError)):
        encode(number)


def test_damaged_files_are_named_as_such() -> None:
    layout = manifests.layout(2, SCHEMA, SPEC)
    row = manifest_lists.manifest_file(manifests.Written(layout), "/m", 1, 7, 3)
    data = manifest_lists.manifest_list_bytes(2, [row], 7, None, 3)
    for broken in (b"", b"PAR1", data[:10], data[:-20], data[: len(data) // 2]):
        with pytest.raises(StorageError):
            manifest_lists.read_manifest_list(broken)
        with pytest.raises(StorageError):
            manifests.read_manifest(broken, row)
    with pytest.raises(StorageError, match="no manifest"):
        manifests.read_manifest(data, row)


def test_bounds_of_uuids_that_an_earlier_writer_left_are_gone_when_an_entry_is_written_again() -> None:
    group = entries.Groups(document(2)).of(0, 0)
    partition = {1000 + i: None for i in range(8)}
    record = entries.data_file(registered("/a", partition_key=partition_key(partition)), group)
    field_id = next(f["id"] for f in SCHEMA["fields"] if f["name"] == "u")
    other = next(f["id"] for f in SCHEMA["fields"] if f["name"] == "s")
    record |= {name: {field_id: b"\0" * 16, other: b"a"} for name in ("lower_bounds", "upper_bounds")}
    written = manifests.Written(group.layout)
    written.add(manifests.ADDED, record, manifests.encode_entry(group.layout, manifests.ADDED, record, 77))
    data = manifests.manifest_bytes(written)
    row = manifest_lists.manifest_file(written, "/m", len(data), 77, 5)
    for _ in range(2):
        manifest = manifests.read_manifest(data, row)
        (entry,) = manifest.entries
        assert (
            entry["data_file"]["lower_bounds"] == entry["data_file"]["upper_bounds"] == [{"key": other, "value": b"a"}]
        )
        again = manifests.Written(group.layout)
        encoded = manifests.encode_again(group.layout, manifest, entry, manifests.EXISTING, 77)
        again.add(manifests.EXISTING, entry["data_file"], encoded, 5)
        data = manifests.manifest_bytes(again)
