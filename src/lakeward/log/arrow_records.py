"""Records of a topic, as in Kafka: key, value, timestamp, headers. What people hand over becomes batches of these columns.

A segment is a Parquet file of them. There is no column of offsets: a record's offset is its segment's base offset plus its
row in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.arrow.coerce import are_columns, coerce
from lakeward.arrow.target import arrow_schema
from lakeward.errors import InvalidInput
from lakeward.log.records import Topic
from lakeward.tables.records.tables import Document

KEY, VALUE, TIMESTAMP, HEADERS = "key", "value", "timestamp", "headers"
TIMESTAMP_ID = 3
_HEADER = {
    "type": "struct",
    "fields": [
        {"id": 6, "name": "key", "required": True, "type": "string"},
        {"id": 7, "name": "value", "required": False, "type": "binary"},
    ],
}


def record_schema(topic: Topic) -> Document:
    """The columns of a topic's segments, as an Iceberg schema: values are bytes, or what the topic declares."""
    headers = {"type": "list", "element-id": 5, "element": _HEADER, "element-required": True}
    return {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 1, "name": KEY, "required": False, "type": "binary"},
            {"id": 2, "name": VALUE, "required": False, "type": topic.value_schema or "binary"},
            {"id": TIMESTAMP_ID, "name": TIMESTAMP, "required": False, "type": "timestamptz"},
            {"id": 4, "name": HEADERS, "required": False, "type": headers},
        ],
    }


def record_batches(data: Any, topic: Topic, key: bytes | str | None = None) -> Iterator[pa.RecordBatch]:
    """Records as batches of the topic's columns.

    Args:
        data: an Arrow table or reader with some of the columns key, value, timestamp and headers; rows, each a dict of these
            or a value alone; or one value. Texts as keys and values become UTF-8. Headers: {name: bytes} or pairs.
        key: of the records that have none.

    Raises:
        FileRefused: a column or a value does not fit.
        InvalidInput: data of another kind.
    """
    schema = record_schema(topic)
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
    fallback = None if key is None else pa.scalar(_bytes(key), pa.binary())
    for batch in coerce(_as_columns(data, topic), schema):
        columns = batch.columns
        columns[2] = pc.fill_null(columns[2], now)
        if fallback is not None:
            columns[0] = pc.fill_null(columns[0], fallback)
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _as_columns(data: Any, topic: Topic) -> Any:
    """What `coerce` takes: Arrow data with bytes for texts, or rows that are dicts of the columns."""
    if isinstance(data, (bytes, str)) or (isinstance(data, Mapping) and not are_columns(data)):
        data = [data]
    if hasattr(data, "__arrow_c_stream__"):
        return _reader_of_bytes(data, topic)
    if isinstance(data, pa.RecordBatch):
        return _reader_of_bytes(pa.Table.from_batches([data]), topic)
    if isinstance(data, Mapping):
        return _reader_of_bytes(pa.table(dict(data)), topic)
    if isinstance(data, Iterable):
        return (_row(each, topic) for each in data)
    raise InvalidInput(
        f"records of type {type(data).__name__} cannot be appended; give an Arrow table, rows such as "
        "{'key': b'k', 'value': b'v'}, or values"
    )


def _reader_of_bytes(data: Any, topic: Topic) -> pa.RecordBatchReader:
    """A stream whose texts in key and value (where it holds bytes) are UTF-8 bytes."""
    reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    of_bytes = {KEY} if topic.value_schema else {KEY, VALUE}
    fields = [
        pa.field(field.name, pa.large_binary() if field.name in of_bytes and _is_text(field.type) else field.type)
        for field in reader.schema
    ]
    if fields == list(reader.schema):
        return reader
    target = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(
        target, (batch.cast(target) if batch.schema != target else batch for batch in reader)
    )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))


def _row(record: Any, topic: Topic) -> dict[str, Any]:
    known = {KEY, VALUE, TIMESTAMP, HEADERS}
    is_record = isinstance(record, Mapping) and (not topic.value_schema or record.keys() <= known)
    row: dict[str, Any] = dict(record) if is_record else {VALUE: record}
    for name in (KEY, *(() if topic.value_schema else (VALUE,))):
        if isinstance(row.get(name), str):
            row[name] = _bytes(row[name])
    if row.get(HEADERS) is not None:
        row[HEADERS] = _headers(row[HEADERS])
    return row


def _headers(headers: Any) -> list[dict[str, Any]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [
        dict(pair)
        if isinstance(pair, Mapping)
        else {"key": pair[0], "value": None if pair[1] is None else _bytes(pair[1])}
        for pair in pairs
    ]


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text
