"""Avro's object container files, as far as Iceberg's metadata needs them.

Records are encoded and decoded by fastavro one at a time, with schemas from which logical types are taken out: dates are
days and decimals bytes, so that no value is lost that Python's types lack, and one record that cannot be encoded spoils
no other. Fields are found by their field ids, never by their names, which differ between writers.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import fastavro
import msgspec

from lakeward.errors import StorageError
from lakeward.model.tables import Document

_MAGIC = b"Obj\x01"
_HEADER: Any = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "size": 16, "name": "sync"}},
        ],
    }
)
_BLOCK_SIZE = 1 << 16  # bytes before compression at which a block is closed


class Container(msgspec.Struct, frozen=True):
    """A container file that was read: its metadata, the schema as it was written, and its records by canonical names."""

    metadata: dict[str, bytes]
    schema: Document
    records: list[dict[str, Any]]


def read_container(data: bytes, names: Mapping[int, str]) -> Container:
    """Decode a whole file. `names`: what fields are called in the records, by field id; others keep their names.

    Raises:
        StorageError: it is no Avro file, is cut short, or has a codec that is not installed.
    """
    try:
        source = io.BytesIO(data)
        reader = fastavro.block_reader(source)
        metadata = {k: v if isinstance(v, bytes) else str(v).encode() for k, v in reader.metadata.items()}
        text = metadata["avro.schema"]
        parsed = _read_schema(text, tuple(names.items()))
        records: list[dict[str, Any]] = []
        for block in reader:
            body: Any = block.bytes_  # type: ignore[attr-defined]
            body.seek(0)
            records.extend(fastavro.schemaless_reader(body, parsed, None) for _ in range(block.num_records))  # type: ignore[misc]
        return Container(metadata, msgspec.json.decode(text), records)
    except (ValueError, EOFError, KeyError, TypeError, zlib.error, IndexError, StopIteration) as error:
        raise StorageError(
            f"Avro file of {len(data)} bytes cannot be read: {error!r}; it is damaged or no Avro file"
        ) from error


def header_schema(data: bytes) -> Document:
    """The schema in a file's header. Raises StorageError: it is no Avro file."""
    if not data.startswith(_MAGIC):
        raise StorageError(f"file of {len(data)} bytes is no Avro file; it is damaged or something else")
    try:
        header: Any = fastavro.schemaless_reader(io.BytesIO(data[len(_MAGIC) :]), _HEADER, None)
        result: Document = msgspec.json.decode(header["meta"]["avro.schema"])
        return result
    except (ValueError, EOFError, KeyError, TypeError, IndexError) as error:
        raise StorageError(
            f"Avro file of {len(data)} bytes has no readable header: {error!r}; it is damaged"
        ) from error


@lru_cache(maxsize=256)
def _read_schema(text: bytes, names: tuple[tuple[int, str], ...]) -> Any:
    return fastavro.parse_schema(canonical(msgspec.json.decode(text), dict(names)))


def canonical(schema: Any, names: Mapping[int, str]) -> Any:
    """A schema with the same encoding: logical types taken out, fields renamed, each named type defined where it is used."""
    known: dict[str, Any] = {}
    count = 0

    def visit(part: Any) -> Any:
        nonlocal count
        if isinstance(part, list):
            return [visit(p) for p in part]
        if isinstance(part, str):
            return visit(known[part]) if part in known else part
        kind = part["type"]
        if kind in ("record", "fixed", "enum"):
            known[part["name"]] = part
            count += 1
            named = {"type": kind, "name": f"t{count}"}
            if kind == "record":
                return {**named, "fields": [field(f) for f in part["fields"]]}
            return {**named, "size": part["size"]} if kind == "fixed" else {**named, "symbols": part["symbols"]}
        if kind == "array":
            return {"type": "array", "items": visit(part["items"])}
        if kind == "map":
            return {"type": "map", "values": visit(part["values"])}
        return visit(kind)

    def field(part: Any) -> Any:
        return {"name": names.get(part.get("field-id"), part["name"]), "type": visit(part["type"])}

    return visit(schema)


class Encoder:
    """Encodes records of one canonical schema.

    fastavro finds a union's branch by trying each one on the value. Which optional fields are null is known here, so for
    each pattern of nulls there is a schema without unions, in which a field holds the number of the branch: twice as fast.
    """

    def __init__(self, schema: Document) -> None:
        self._schema = schema
        self._parsed: dict[tuple[Any, ...], Any] = {}
        self._optional = self._optional_names(schema)

    def _optional_names(self, record: Document) -> tuple[Any, ...]:
        """Names of optional fields, then (name, the same) of fields that are records."""
        fields = record["fields"]
        own = [f["name"] for f in fields if isinstance(f["type"], list)]
        inner = [
            (f["name"], self._optional_names(f["type"]))
            for f in fields
            if isinstance(f["type"], dict) and f["type"]["type"] == "record"
        ]
        return tuple(own), tuple(inner)

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Raises ValueError, TypeError, OverflowError, KeyError or AttributeError: the record is none of the schema."""
        nulls = _nulls(record, self._optional)
        parsed = self._parsed.get(nulls)
        if parsed is None:
            parsed = self._parsed[nulls] = fastavro.parse_schema(_without_unions(self._schema, set(nulls), ""))
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()


def _nulls(record: Mapping[str, Any], optional: tuple[Any, ...], above: str = "") -> tuple[str, ...]:
    own, inner = optional
    found = tuple(above + name for name in own if record.get(name) is None)
    for name, below in inner:
        found += _nulls(record[name], below, f"{above}{name}.")
    return found


def _without_unions(record: Document, nulls: set[str], above: str) -> Document:
    fields: list[Document] = []
    for each in record["fields"]:
        name, type_ = each["name"], each["type"]
        if isinstance(type_, list):
            null_at = type_.index("null")
            is_null = above + name in nulls
            fields.append({"name": f"{name} branch", "type": "int", "default": null_at if is_null else 1 - null_at})
            if is_null:
                continue
            type_ = type_[1 - null_at]
        elif isinstance(type_, dict) and type_["type"] == "record":
            type_ = _without_unions(type_, nulls, f"{above}{name}.")
        fields.append({"name": name, "type": type_})
    return {**record, "fields": fields}


def write_container(schema: Document, metadata: Mapping[str, str], records: Iterable[bytes]) -> bytes:
    """A container file of encoded records, compressed by deflate, which every reader of Iceberg has.

    `schema` is written as it is, with logical types and field ids.
    """
    sync = os.urandom(16)
    meta = {"avro.schema": msgspec.json.encode(schema), "avro.codec": b"deflate"}
    meta |= {key: value.encode() for key, value in metadata.items()}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _HEADER, {"meta": meta, "sync": sync})
    head = out.getvalue()
    out = io.BytesIO()
    out.write(_MAGIC + head)
    block: list[bytes] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record)
        if size >= _BLOCK_SIZE:
            _write_block(out, block, sync)
            block, size = [], 0
    if block:
        _write_block(out, block, sync)
    return out.getvalue()


def _write_block(out: io.BytesIO, records: list[bytes], sync: bytes) -> None:
    compressor = zlib.compressobj(level=1, wbits=-15)  # raw deflate; higher levels cost more time than they save
    body = compressor.compress(b"".join(records)) + compressor.flush()
    out.write(_long(len(records)) + _long(len(body)) + body + sync)


def _long(value: int) -> bytes:
    """A non-negative number in Avro's zigzag variable-length form."""
    rest, result = value << 1, bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)
