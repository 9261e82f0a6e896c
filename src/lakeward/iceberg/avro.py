"""Avro's object container files, as far as Iceberg's metadata needs them.

Records are decoded (by fastavro) and encoded one at a time, with schemas from which logical types are taken out: dates are
days and decimals bytes, so that no value is lost that Python's types lack, and one record that cannot be encoded spoils
no other. Fields are found by their field ids, never by their names, which differ between writers.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import fastavro
import msgspec
import pyarrow as pa

from lakeward.errors import StorageError
from lakeward.tables.records.tables import Document

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


class Header(msgspec.Struct, frozen=True):
    """What stands before the records. `schema` is as it was written; the first block starts at byte `length`."""

    metadata: dict[str, bytes]
    schema: Document
    sync: bytes
    length: int


class Container(msgspec.Struct, frozen=True):
    """A container file that was read: its metadata, the schema as it was written, and its records by canonical names.

    `encoded`: each record as it stands in the file; `form`: what the bytes mean. Those of equal forms are read alike.
    """

    metadata: dict[str, bytes]
    schema: Document
    records: list[dict[str, Any]]
    encoded: list[bytes]
    form: bytes


def read_container(data: bytes, names: Mapping[int, str], header: Header | None = None) -> Container:
    """Decode a whole file. `names`: what fields are called in the records, by field id; others keep their names.
    `header`: the file's, from one who has read it already.

    The codecs that Iceberg's writers use are read: deflate, zstandard, snappy, null. (fastavro's own reader refuses a name
    that is defined twice, as PyIceberg does for two partition fields of one decimal type.)

    Raises:
        StorageError: it is no Avro file, is cut short, or has another codec.
    """
    header = read_header(data) if header is None else header
    at = header.length
    try:
        parsed, form = _read_schema(header.metadata["avro.schema"], tuple(names.items()))
        codec = header.metadata.get("avro.codec", b"null").decode()
        records: list[dict[str, Any]] = []
        encoded: list[bytes] = []
        while at < len(data):
            count, at = _read_long(data, at)
            size, at = _read_long(data, at)
            if data[at + size : at + size + 16] != header.sync:
                raise EOFError("a block does not end where it should")
            block = _decompressed(codec, data[at : at + size])
            body = io.BytesIO(block)
            for _ in range(count):
                start = body.tell()
                records.append(fastavro.schemaless_reader(body, parsed, None))  # type: ignore[arg-type]
                encoded.append(block[start : body.tell()])
            at += size + 16
        return Container(header.metadata, header.schema, records, encoded, form)
    except _BROKEN as error:
        raise StorageError(
            f"Avro file of {len(data)} bytes cannot be read: it is damaged or has a codec that is not known"
        ) from error


_BROKEN = (ValueError, EOFError, KeyError, TypeError, IndexError, StopIteration, OSError, zlib.error, pa.ArrowException)


def _decompressed(codec: str, data: bytes) -> bytes:
    if codec == "deflate":
        return zlib.decompress(data, wbits=-15)
    if codec == "zstandard":
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    if codec == "snappy":  # the length before compression is in front, a checksum behind
        length, shift = 0, 0
        for byte in data:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return bytes(pa.decompress(data[:-4], decompressed_size=length, codec="snappy", asbytes=True))
    if codec == "null":
        return data
    raise ValueError(f"codec {codec}")


def after_long(data: bytes, at: int) -> int:
    """Where the next thing starts after a number."""
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, and where the next thing starts."""
    result, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if result & 1:
        raise ValueError("a negative length")
    return result >> 1, at


def read_header(data: bytes) -> Header:
    """The header of a file. Raises StorageError: it is no Avro file, or is damaged."""
    if not data.startswith(_MAGIC):
        raise StorageError(f"file of {len(data)} bytes is no Avro file; it is damaged or something else")
    source = io.BytesIO(data)
    source.seek(len(_MAGIC))
    try:
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
        if len(header["sync"]) != 16:
            raise EOFError("the header is cut short")
        schema = msgspec.json.decode(header["meta"]["avro.schema"])
        return Header(header["meta"], schema, header["sync"], source.tell())
    except _BROKEN as error:
        raise StorageError(f"Avro file of {len(data)} bytes has no readable header; it is damaged") from error


@lru_cache(maxsize=256)
def _read_schema(text: bytes, names: tuple[tuple[int, str], ...]) -> tuple[Any, bytes]:
    schema = canonical(msgspec.json.decode(text), dict(names))
    return fastavro.parse_schema(schema), form_of(schema)


def field_names(schema: Any) -> dict[int, str]:
    """Names by field id over a whole schema."""
    names: dict[int, str] = {}
    if isinstance(schema, list):
        for each in schema:
            names |= field_names(each)
    elif isinstance(schema, dict):
        for each in schema.get("fields", ()):
            if "field-id" in each:
                names[each["field-id"]] = each["name"]
            names |= field_names(each["type"])
        for key in ("items", "values", "type"):
            names |= field_names(schema.get(key))
    return names


def form_of(schema: Any) -> bytes:
    """What tells canonical schemas apart."""
    return msgspec.json.encode(schema, order="sorted")


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


# Encoding --------------------------------------------------------------------------------------------------------------
# In Python itself: an entry is mostly maps of small numbers, for each of which fastavro takes a dict.
_Put = Callable[[bytes], None]
_Encode = Callable[[_Put, Any], None]


def long(value: int) -> bytes:
    """A number of 64 bits in Avro's zigzag variable-length form. Raises TypeError, OverflowError: it is none."""
    if 0 <= value < _CACHED:
        return _LONGS[value]
    return _long(value)


def _long(value: int) -> bytes:
    rest = value << 1 ^ value >> 63
    if not 0 <= rest < 1 << 64:
        raise OverflowError(f"{value} has more than 64 bits")
    result = bytearray()
    while rest > 0x7F:
        result.append(rest & 0x7F | 0x80)
        rest >>= 7
    result.append(rest)
    return bytes(result)


_CACHED = 1 << 12
_LONGS = [_long(value) for value in range(_CACHED)]


class _Known(dict[int, bytes]):
    """`long` as a look-up, which is quicker than a call: an entry has a hundred numbers."""

    def __missing__(self, value: int) -> bytes:
        made = long(value)
        if len(self) < _MOST_KNOWN:
            self[value] = made
        return made


_MOST_KNOWN = 1 << 16
_KNOWN = _Known(enumerate(_LONGS))


def encoder(schema: Any) -> Callable[[Any], bytes]:
    """A function that encodes one value of a canonical schema.

    Records are mappings, in which what is missing is null. An array of records of key and value may be given as a dict.
    It raises ValueError, TypeError, OverflowError, KeyError or AttributeError for a value that is none of the schema.
    """
    put_value = _encode(schema)

    def encode(value: Any) -> bytes:
        parts: list[bytes] = []
        put_value(parts.append, value)
        return b"".join(parts)

    return encode


def _encode(schema: Any) -> _Encode:
    if isinstance(schema, list):
        return _encode_union(schema)
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    kind = schema["type"]
    if kind == "record":
        return _encode_record(schema)
    if kind == "array":
        return _encode_array(schema["items"])
    if kind == "fixed":
        return _encode_fixed(schema["size"])
    return _encode(kind)


def _encode_record(schema: Document) -> _Encode:
    fields = [(f["name"], _encode(f["type"])) for f in schema["fields"]]

    def encode(put: _Put, record: Any) -> None:
        get = record.get
        for name, put_field in fields:
            put_field(put, get(name))

    return encode


def _encode_union(schema: list[Any]) -> _Encode:
    null_at = schema.index("null")
    null, present, put_value = _LONGS[null_at], _LONGS[1 - null_at], _encode(schema[1 - null_at])

    def encode(put: _Put, value: Any) -> None:
        if value is None:
            put(null)
        else:
            put(present)
            put_value(put, value)

    return encode


def _encode_array(items: Any) -> _Encode:
    put_item = _encode(items)
    is_map = isinstance(items, dict) and [f["name"] for f in items.get("fields", ())] == ["key", "value"]
    put_map = _encode_map(items) if is_map else None

    def encode(put: _Put, values: Any) -> None:
        if put_map is not None and isinstance(values, dict):
            put_map(put, values)
        else:
            if values:
                put(long(len(values)))
                for value in values:
                    put_item(put, value)
            put(b"\0")

    return encode


def _encode_map(items: Document) -> _Encode:
    put_key, put_value = (_encode(f["type"]) for f in items["fields"])
    is_bytes, is_long = ([f["type"] for f in items["fields"]] == ["int", t] for t in ("bytes", "long"))
    known = _KNOWN

    def encode(put: _Put, values: Any) -> None:
        if values:
            put(long(len(values)))
            if is_long:
                put(b"".join([known[k] + known[v] for k, v in values.items()]))
            elif is_bytes:
                put(b"".join([known[k] + known[len(v)] + v for k, v in values.items()]))
            else:
                for key, value in values.items():
                    put_key(put, key)
                    put_value(put, value)
        put(b"\0")

    return encode


def _encode_fixed(size: int) -> _Encode:
    def encode(put: _Put, value: Any) -> None:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes instead of {size}")
        put(value)

    return encode


def _put_int(put: _Put, value: Any) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise OverflowError(f"{value} has more than 32 bits")
    put(long(value))


def _put_bytes(put: _Put, value: Any) -> None:
    put(long(len(value)))
    put(value)


_PRIMITIVES: dict[str, _Encode] = {
    "null": lambda put, value: None,
    "boolean": lambda put, value: put(b"\1" if value else b"\0"),
    "int": _put_int,
    "long": lambda put, value: put(long(value)),
    "float": lambda put, value: put(struct.pack("<f", value)),
    "double": lambda put, value: put(struct.pack("<d", value)),
    "bytes": _put_bytes,
    "string": lambda put, value: _put_bytes(put, value.encode()),
}


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
    out.write(long(len(records)) + long(len(body)) + body + sync)
