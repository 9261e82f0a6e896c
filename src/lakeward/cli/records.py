"""Records of topics as JSON lines: {"key": "k", "value": "v", "timestamp": "2026-01-02T03:04:05Z", "headers": {"h": "x"}}.

Bytes are texts where they are UTF-8, else {"base64": "..."}. A value that is no text goes in as its JSON.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from lakeward.errors import InvalidInput
from lakeward.log.records import Topic

FIELDS = ("key", "value", "timestamp", "headers")
SHOWN = ("topic", "partition", "offset")  # what reading adds, and appending leaves out


def from_lines(lines: Iterable[bytes], topic: Topic) -> Iterator[dict[str, Any]]:
    """Records of JSON lines. Raises InvalidInput: naming the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = msgspec.json.decode(line)
            yield _record(document, topic)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {_start(line)} is no record: {error}") from error
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f'line {number}: {_start(line)} is no record; a line is JSON such as {{"key": "k", "value": "v"}}, a timestamp '
                'such as "2026-01-02T03:04:05Z", headers an object'
            ) from error


def _start(line: bytes) -> str:
    return str(line[:80])[2:-1]


def _record(document: Any, topic: Topic) -> dict[str, Any]:
    if not isinstance(document, Mapping) or "value" not in document:
        raise InvalidInput('a line is an object with a value, such as {"key": "k", "value": "v"}')
    if unknown := sorted(document.keys() - set(FIELDS) - set(SHOWN)):
        raise InvalidInput(f"field {unknown[0]!r} is not known; there are {', '.join(FIELDS)}")
    record: dict[str, Any] = {name: document[name] for name in FIELDS if document.get(name) is not None}
    if "key" in record:
        record["key"] = _bytes(record["key"])
    if "value" in record and topic.value_schema is None:
        record["value"] = _bytes(record["value"])
    if "timestamp" in record:
        record["timestamp"] = datetime.fromisoformat(record["timestamp"])
    if "headers" in record:
        record["headers"] = {
            name: None if value is None else _bytes(value) for name, value in record["headers"].items()
        }
    return record


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise InvalidInput("what 'base64' holds is no base64") from error
    return msgspec.json.encode(value)


def to_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it was read, as a line's object."""
    headers = {each["key"]: _shown(each["value"]) for each in row["headers"] or ()}
    document = {name: row[name] for name in (*SHOWN, "timestamp")}
    document |= {"key": _shown(row["key"]), "value": _shown(row["value"])}
    return document | ({"headers": headers} if headers else {})


def _shown(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
