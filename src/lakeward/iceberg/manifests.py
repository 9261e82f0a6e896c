"""Manifests of format versions 2 and 3 (specification, 'Manifests').

Records are plain dicts under the specification's names, whatever names the writer gave. In an entry's data_file,
`partition` is a dict of 'p<field id>' to the Avro form of the value (see `iceberg.values`), and statistics are lists of
{"key", "value"} as read, and may be dicts when written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from lakeward.errors import StorageError
from lakeward.iceberg import avro, types, values
from lakeward.iceberg.partitions import partition_fields
from lakeward.tables.records.tables import Document

EXISTING, ADDED, DELETED = 0, 1, 2  # status of an entry
DATA, DELETES = 0, 1  # content of a manifest

Record: TypeAlias = "dict[str, Any]"
Encode: TypeAlias = "Callable[[Any], bytes]"

_PARTITION = 102  # the field id of data_file.partition


class PartitionField(msgspec.Struct, frozen=True):
    """One field of the partitions in a manifest: its key in `partition`, and the Iceberg type of its values."""

    key: str
    type: str


class Manifest(msgspec.Struct, frozen=True):
    """A manifest that was read. `partition_record` is the Avro record of its partitions, as it was written.

    An entry's `encoded` are its bytes, where nothing of its data_file was inherited; `form` says what they mean.
    """

    metadata: dict[str, str]
    entries: list[Record]
    form: bytes
    partition_record: Document
    fields: list[PartitionField]


class Layout(msgspec.Struct, frozen=True):
    """How manifests of one kind of partition are written: the schema in the header, and the encoder of entries."""

    version: int
    schema: Document
    form: bytes
    encode: Encode
    fields: tuple[PartitionField, ...]
    metadata: dict[str, str]


# Schemas -------------------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=4)
def _entry_template(version: int) -> bytes:
    """The Avro schema of entries, with an empty partition, as JSON text: each user takes a copy."""
    from pyiceberg.manifest import data_file_with_partition, manifest_entry_schema_with_data_file
    from pyiceberg.types import StructType
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    schema = manifest_entry_schema_with_data_file(version, data_file_with_partition(StructType(), version))  # type: ignore[arg-type]
    converted: Any = AvroSchemaConversion().iceberg_to_avro(schema, schema_name="manifest_entry")
    data_file = next(f for f in converted["fields"] if f["name"] == "data_file")["type"]
    ids = next(f for f in data_file["fields"] if f["name"] == "equality_ids")
    ids["type"][1]["items"] = "int"  # as in the specification; PyIceberg has long
    return msgspec.json.encode(converted)


@lru_cache(maxsize=1)
def _entry_names() -> dict[int, str]:
    return avro.field_names(msgspec.json.decode(_entry_template(3)))


def _avro_type(type_: str, field_id: int) -> Any:
    """The Avro type of a partition's values. Fixed types carry the field's id in their names: a name may be defined once."""
    if (parts := types.decimal_parts(type_)) is not None:
        name = f"decimal_{parts[0]}_{parts[1]}_{field_id}"
        logical = {"logicalType": "decimal", "precision": parts[0], "scale": parts[1]}
        return {"type": "fixed", "size": values.decimal_length(parts[0]), **logical, "name": name}
    if (length := types.fixed_length(type_)) is not None:
        return {"type": "fixed", "size": length, "name": f"fixed_{length}_{field_id}"}
    if type_ == "uuid":
        return {"type": "fixed", "size": 16, "logicalType": "uuid", "name": f"uuid_fixed_{field_id}"}
    if type_.startswith("timestamp"):
        logical_type = "timestamp-nanos" if type_.endswith("_ns") else "timestamp-micros"
        return {"type": "long", "logicalType": logical_type, "adjust-to-utc": type_.startswith("timestamptz")}
    others = {
        "binary": "bytes",
        "date": {"type": "int", "logicalType": "date"},
        "time": {"type": "long", "logicalType": "time-micros"},
        "unknown": "int",  # the column is gone and every value null, which any type can be
    }
    return others.get(type_, type_)


def _partition_record(schema: Document, spec: Document) -> Document:
    fields = []
    for field_id, name, _, _, kept in partition_fields(schema, spec):
        written = _avro_name(name)
        field = {"name": written, "field-id": field_id, "type": ["null", _avro_type(kept, field_id)], "default": None}
        if written != name:
            field["iceberg-field-name"] = name
        fields.append(field)
    return {"type": "record", "name": "r102", "fields": fields}


def _avro_name(name: str) -> str:
    """Avro's names are ASCII: every other character becomes _x and its number."""
    from pyiceberg.schema import make_compatible_name

    return make_compatible_name("".join(c if c.isascii() else f"_x{ord(c):X}" for c in name))


def layout(version: int, schema: Document, spec: Document) -> Layout:
    """The layout of new manifests for files of a schema and a spec. Layouts of equal partitions share what is parsed."""
    record = _partition_record(schema, spec)
    fields = tuple(PartitionField(f"p{i}", kept) for i, _, _, _, kept in partition_fields(schema, spec))
    metadata = {
        "schema": msgspec.json.encode(schema).decode(),
        "schema-id": str(schema.get("schema-id", 0)),
        "partition-spec": msgspec.json.encode(spec["fields"]).decode(),
        "partition-spec-id": str(spec["spec-id"]),
    }
    return _layout(version, record, fields, metadata)


def layout_of(version: int, manifest: Manifest) -> Layout:
    """The layout in which a manifest that was read is written again, under its own schema and spec."""
    kept = {k: manifest.metadata[k] for k in _HEADER_KEYS if k in manifest.metadata}
    return _layout(version, manifest.partition_record, tuple(manifest.fields), kept)


_HEADER_KEYS = ("schema", "schema-id", "partition-spec", "partition-spec-id", "content")


def _layout(version: int, record: Document, fields: tuple[PartitionField, ...], metadata: dict[str, str]) -> Layout:
    schema, form, encode = _entry_encoder(version, msgspec.json.encode(record))
    return Layout(version, schema, form, encode, fields, {**metadata, "format-version": str(version)})


@lru_cache(maxsize=256)
def _entry_encoder(version: int, partition_record: bytes) -> tuple[Document, bytes, Encode]:
    schema = msgspec.json.decode(_entry_template(version))
    record = msgspec.json.decode(partition_record)
    for field in record["fields"]:  # optional, null first, in whatever way another writer had it
        inner = field["type"] if not isinstance(field["type"], list) else next(t for t in field["type"] if t != "null")
        field.update({"type": ["null", inner], "default": None})
    data_file = next(f for f in schema["fields"] if f["name"] == "data_file")["type"]
    next(f for f in data_file["fields"] if f.get("field-id") == _PARTITION)["type"] = {**record, "name": "r102"}
    plain = avro.canonical(schema, _names_with(record))
    assert [f["name"] for f in plain["fields"]] == ["status", *_NUMBERS, "data_file"]
    assert all(f["type"] == ["null", "long"] for f in plain["fields"][1:4])
    return schema, avro.form_of(plain), avro.encoder(plain)


def _names_with(partition_record: Document) -> dict[int, str]:
    return {**_entry_names(), **{f["field-id"]: f"p{f['field-id']}" for f in partition_record["fields"]}}


# Manifests -------------------------------------------------------------------------------------------------------------------
def read_manifest(data: bytes, file: Mapping[str, Any]) -> Manifest:
    """A manifest, with what its entries inherit from its row in the manifest list (`file`) filled in.

    Sequence numbers and snapshot ids as the specification's 'Sequence Number Inheritance' has it, first_row_id by 'First
    Row ID Inheritance'.

    Raises:
        StorageError: the bytes are no manifest.
    """
    header = avro.read_header(data)
    record = _find_partition(header.schema)
    container = avro.read_container(data, _names_with(record), header)
    metadata = {k: v.decode() for k, v in container.metadata.items() if not k.startswith("avro.")}
    for entry, encoded in zip(container.records, container.encoded, strict=True):
        entry["encoded"] = encoded
    _drop_uuid_bounds(container.records, metadata)
    _inherit(container.records, file)
    return Manifest(metadata, container.records, container.form, record, _fields_of(metadata, record))


def _find_partition(schema: Document) -> Document:
    """The record of data_file.partition (field 102 of field 2)."""
    try:
        data_file = next(f for f in schema["fields"] if f.get("field-id") == 2)["type"]
        return dict(next(f for f in data_file["fields"] if f.get("field-id") == _PARTITION)["type"])
    except (StopIteration, KeyError, TypeError) as error:
        raise StorageError("Avro file has no data_file.partition; it is no manifest of Iceberg") from error


def _fields_of(metadata: Mapping[str, str], record: Document) -> list[PartitionField]:
    spec = {"fields": msgspec.json.decode(metadata.get("partition-spec", "[]"))}
    schema = msgspec.json.decode(metadata["schema"])
    kept = {field_id: kept for field_id, _, _, _, kept in partition_fields(schema, spec)} if spec["fields"] else {}
    return [PartitionField(f"p{f['field-id']}", kept.get(f["field-id"], "unknown")) for f in record["fields"]]


def _drop_uuid_bounds(entries: Iterable[Record], metadata: Mapping[str, str]) -> None:
    """What is read is written again without the bounds that `iceberg.entries` leaves out."""
    if '"uuid"' not in metadata["schema"]:
        return
    uuids = {column.field_id for column in types.walk(msgspec.json.decode(metadata["schema"])) if column.type == "uuid"}
    for entry in entries:
        for name in ("lower_bounds", "upper_bounds"):
            bounds = entry["data_file"].get(name) or []
            if any(bound["key"] in uuids for bound in bounds):
                entry["data_file"][name] = [bound for bound in bounds if bound["key"] not in uuids] or None
                entry.pop("encoded", None)


def _inherit(entries: Iterable[Record], file: Mapping[str, Any]) -> None:
    row_id = file.get("first_row_id")
    for entry in entries:
        data_file = entry["data_file"]
        if entry.get("snapshot_id") is None:
            entry["snapshot_id"] = file["added_snapshot_id"]
        for key in ("sequence_number", "file_sequence_number"):
            # Entries of version 1 have none at all, and its files the number 0.
            if entry.get(key) is None and (entry["status"] == ADDED or not file["sequence_number"]):
                entry[key] = file["sequence_number"]
        data_file.setdefault("content", 0)
        if row_id is not None and entry["status"] != DELETED and data_file.get("first_row_id") is None:
            data_file["first_row_id"] = row_id
            entry.pop("encoded", None)
            row_id += data_file["record_count"]


def live(entries: Iterable[Record]) -> Iterator[Record]:
    return (entry for entry in entries if entry["status"] != DELETED)


def encode_entry(
    layout_: Layout,
    status: int,
    data_file: Record,
    snapshot_id: int | None,
    sequence_number: int | None = None,
    file_sequence_number: int | None = None,
) -> bytes:
    """One entry. Numbers that are none are inherited by its readers.

    Raises:
        ValueError, TypeError, OverflowError, KeyError, AttributeError: a value is none of its field's type.
    """
    return layout_.encode(
        {
            "status": status,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "file_sequence_number": file_sequence_number,
            "data_file": data_file,
        }
    )


def encode_again(layout_: Layout, manifest: Manifest, entry: Record, status: int, snapshot_id: int | None) -> bytes:
    """An entry of a manifest that was read, with its sequence numbers. Raises as `encode_entry`."""
    numbers = (snapshot_id, *(entry[name] for name in _NUMBERS[1:]))
    if layout_.form == manifest.form and (encoded := entry.get("encoded")) is not None:
        head = b"".join(b"\0" if number is None else b"\2" + avro.long(number) for number in numbers)
        rest: bytes = encoded[_after_numbers(encoded) :]
        return avro.long(status) + head + rest
    data_file = entry["data_file"]
    lists = {name: data_file[name] for name in _MAPS if data_file.get(name)}
    # A dict is encoded quicker than a list of pairs.
    maps = {name: {each["key"]: each["value"] for each in pairs} for name, pairs in lists.items()}
    return encode_entry(layout_, status, {**data_file, **maps}, *numbers)


_NUMBERS = ("snapshot_id", "sequence_number", "file_sequence_number")
_MAPS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def _after_numbers(encoded: bytes) -> int:
    """Where data_file starts."""
    at = avro.after_long(encoded, 0)
    for _ in _NUMBERS:
        at = at + 1 if encoded[at] == 0 else avro.after_long(encoded, at + 1)
    return at


class Written(msgspec.Struct):
    """What goes into one new manifest: encoded entries, and what its row in the manifest list says of them."""

    layout: Layout
    content: int = DATA
    entries: list[bytes] = []
    counts: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])  # by status
    rows: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    partitions: list[dict[str, Any]] = []
    min_sequence: int | None = None

    def add(self, status: int, data_file: Record, encoded: bytes, sequence_number: int | None = None) -> None:
        self.entries.append(encoded)
        self.counts[status] += 1
        self.rows[status] += data_file["record_count"]
        self.partitions.append(data_file["partition"])
        if status != DELETED and sequence_number is not None:
            self.min_sequence = (
                sequence_number if self.min_sequence is None else min(self.min_sequence, sequence_number)
            )


def manifest_bytes(written: Written) -> bytes:
    """The manifest as a file."""
    metadata = {**written.layout.metadata, "content": "data" if written.content == DATA else "deletes"}
    return avro.write_container(written.layout.schema, metadata, written.entries)
