"""Iceberg's types as JSON documents (specification, 'Schemas and Data Types' and appendix C): reading, numbering, walking."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakeward.errors import InvalidSchema
from lakeward.names import is_storable
from lakeward.tables.records.tables import Document

# 'long', 'decimal(9, 2)' or a dict with "type": "struct" | "list" | "map".
TypeDocument: TypeAlias = "str | Document"

UNNUMBERED = 0  # the id of a nested field that has not been given one yet
LAST_FIELD_ID = 2147483447  # those above are reserved (specification, 'Reserved Field IDs')

_SIMPLE = {
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary",
}  # fmt: skip
_SINCE_V3 = ("timestamp_ns", "timestamptz_ns", "unknown", "variant")
_GEOMETRY = re.compile(r"geometry(\(\s*[^(),\s][^(),]*\))?")
_GEOGRAPHY = re.compile(
    r"geography(\(\s*[^(),\s][^(),]*(,\s*(spherical|vincenty|thomas|andoyer|karney)\s*)?\))?", re.IGNORECASE
)
_MAX_FIXED = (1 << 31) - 1
_ALIASES = {
    "bool": "boolean", "integer": "int", "tinyint": "int", "smallint": "int", "byte": "int", "short": "int",
    "bigint": "long", "real": "float", "str": "string", "text": "string", "varchar": "string", "char": "string",
    "bytes": "binary", "timestamp_ntz": "timestamp", "timestamp_ltz": "timestamptz", "array": "list",
    "numeric": "decimal", "dec": "decimal",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\)")
_FIXED = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]")


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a schema at any depth. `path` is from the top; list and map parts are 'element', 'key' and 'value'."""

    field_id: int
    path: tuple[str, ...]
    type: TypeDocument
    required: bool
    field: Document  # with its doc and defaults; empty for parts of lists and maps, which have none
    index: int  # among its siblings, from 0
    parent_id: int | None  # None at the top

    @property
    def doc(self) -> str | None:
        return self.field.get("doc")

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def full_name(self) -> str:
        return ".".join(self.path)


def is_nested(type_: TypeDocument) -> bool:
    return not isinstance(type_, str)


def decimal_parts(type_: TypeDocument) -> tuple[int, int] | None:
    """(precision, scale) of a decimal type, none for any other."""
    match = _DECIMAL.fullmatch(type_) if isinstance(type_, str) else None
    return None if match is None else (int(match[1]), int(match[2]))


def fixed_length(type_: TypeDocument) -> int | None:
    """The length in bytes of a fixed type, none for any other."""
    match = _FIXED.fullmatch(type_) if isinstance(type_, str) else None
    return None if match is None else int(match[1])


def decimal(precision: int, scale: int) -> str:
    """The type's text. Raises InvalidSchema: precision outside 1..38, or a scale outside 0..precision."""
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise InvalidSchema(
            f"decimal({precision}, {scale}) is outside what Iceberg holds; use a precision of 1 to 38 and a scale of 0 up to it"
        )
    return f"decimal({precision}, {scale})"


def is_since_v3(text: str) -> bool:
    """Whether a type is one of those that format version 3 has and earlier ones have not."""
    return text in _SINCE_V3 or bool(_GEOMETRY.fullmatch(text) or _GEOGRAPHY.fullmatch(text))


def check_primitive(text: str) -> str:
    """A primitive type's text in the form that the specification writes.

    Raises:
        InvalidSchema: not a type of Iceberg.
    """
    if text in _SIMPLE or is_since_v3(text):
        return text
    if (parts := decimal_parts(text)) is not None:
        return decimal(*parts)
    length = fixed_length(text)
    if length is not None and 0 < length <= _MAX_FIXED:
        return f"fixed[{length}]"
    raise InvalidSchema(
        f"type {text!r} is not known; use boolean, int, long, float, double, decimal(p, s), date, time, timestamp, timestamptz, "
        "string, uuid, fixed[n], binary, list<...>, map<..., ...> or struct<name: type>"
    )


# Text ------------------------------------------------------------------------------------------------------------------
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([\w.$-]+)|(.))", re.DOTALL)


class _Reader:
    """Reads one type from text by recursive descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [m[1] or m[2] or m[3] for m in _TOKEN.finditer(text.strip())]
        self.at = 0

    def error(self) -> InvalidSchema:
        return InvalidSchema(
            f"type {self.text!r} cannot be read near {''.join(self.tokens[self.at : self.at + 3])!r}; "
            "write for example 'long', 'decimal(9, 2)', 'list<string>', 'map<string, int>' or 'struct<a: int, b: string>'"
        )

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token.lower() not in expected):
            raise self.error()
        self.at += 1
        return token

    def skip(self, token: str) -> bool:
        if self.peek().lower() != token:
            return False
        self.at += 1
        return True

    def number(self) -> int:
        token = self.take()
        if not token.isdecimal():
            self.at -= 1
            raise self.error()
        return int(token)

    def type(self) -> TypeDocument:
        word = self.take().lower()
        word = _ALIASES.get(word, word)
        if word == "list":
            self.take("<")
            element = self.type()
            required = self.not_null()
            self.take(">")
            return list_type(element, required)
        if word == "map":
            self.take("<")
            key = self.type()
            self.take(",")
            value = self.type()
            required = self.not_null()
            self.take(">")
            return map_type(key, value, required)
        if word == "struct":
            return self.struct()
        if word == "decimal":
            if not self.skip("("):
                return decimal(10, 0)
            precision = self.number()
            scale = self.number() if self.skip(",") else 0
            self.take(")")
            return decimal(precision, scale)
        if word == "fixed":
            closing = ")" if self.take("(", "[") == "(" else "]"
            length = self.number()
            self.take(closing)
            return check_primitive(f"fixed[{length}]")
        if word == "string" and self.skip("("):  # varchar(n): the length is not kept
            self.number()
            self.take(")")
        return check_primitive(word)

    def not_null(self) -> bool:
        if self.skip("not"):
            self.take("null")
            return True
        return False

    def struct(self) -> TypeDocument:
        self.take("<")
        fields: list[Document] = []
        while not fields or self.skip(","):
            token = self.take()
            name = token[1:-1].replace("``", "`") if token.startswith("`") else token
            self.skip(":")
            type_ = self.type()
            fields.append(field(name, type_, self.not_null()))
        self.take(">")
        return struct_type(fields)


def parse_text(text: str) -> TypeDocument:
    """A type from its text: Iceberg's names, SQL's usual ones besides ('bigint', 'array<...>', 'varchar(10)').

    'timestamp' is without a zone and 'timestamptz' with one, as in Iceberg. Nested fields are optional unless followed by
    'not null', and are not numbered yet.

    Raises:
        InvalidSchema: the text is no type.
    """
    reader = _Reader(text)
    if not reader.tokens:
        raise InvalidSchema("the type is empty; write for example 'long' or 'string'")
    result = reader.type()
    if reader.peek():
        raise reader.error()
    return result


# Building --------------------------------------------------------------------------------------------------------------
def field(name: str, type_: TypeDocument, required: bool = False, doc: str | None = None) -> Document:
    """A struct's field without a number. Raises InvalidSchema: the name is empty or no text."""
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"column name {name!r} is empty; every column needs a name")
    if not is_storable(name):
        raise InvalidSchema(f"column name {name!r} holds NUL or half a character; use other characters")
    result: Document = {"id": UNNUMBERED, "name": name, "required": required, "type": type_}
    if doc:
        result["doc"] = doc
    return result


def struct_type(fields: list[Document]) -> Document:
    if not fields:
        raise InvalidSchema("a struct without fields cannot be stored in Parquet; give it at least one field")
    return {"type": "struct", "fields": fields}


def list_type(element: TypeDocument, required: bool = False) -> Document:
    return {"type": "list", "element-id": UNNUMBERED, "element": element, "element-required": required}


def map_type(key: TypeDocument, value: TypeDocument, required: bool = False) -> Document:
    return {
        "type": "map",
        "key-id": UNNUMBERED,
        "key": key,
        "value-id": UNNUMBERED,
        "value": value,
        "value-required": required,
    }


def checked(type_: Any) -> TypeDocument:
    """A copy of a type document with every part of it checked and the keys in the specification's order.

    Raises:
        InvalidSchema: a part is missing or is no type.
    """
    if isinstance(type_, str):
        return check_primitive(type_)
    kind = type_.get("type") if isinstance(type_, Mapping) else None
    if not isinstance(kind, str) or kind not in _PARTS:
        raise InvalidSchema(f"type document {type_!r} is neither struct, list nor map; see Iceberg's specification")
    _has(type_, _PARTS[kind], f"type document {type_!r}")
    if kind == "struct":
        if not isinstance(type_["fields"], Iterable) or isinstance(type_["fields"], str):
            raise InvalidSchema(f"type document {type_!r} has fields that are no list; give a list of columns")
        return struct_type([checked_field(f) for f in type_["fields"]])
    if kind == "list":
        listed = list_type(checked(type_["element"]), _flag(type_["element-required"]))
        return {**listed, "element-id": _id(type_.get("element-id", UNNUMBERED))}
    mapped = map_type(checked(type_["key"]), checked(type_["value"]), _flag(type_["value-required"]))
    return {**mapped, **{k: _id(type_.get(k, UNNUMBERED)) for k in ("key-id", "value-id")}}


_PARTS = {
    "struct": ("fields",),
    "list": ("element", "element-required"),
    "map": ("key", "value", "value-required"),
}


def _has(document: Any, names: Sequence[str], what: str) -> None:
    if not isinstance(document, Mapping):
        raise InvalidSchema(f"{what} is no object; see Iceberg's specification")
    if missing := [name for name in names if name not in document]:
        raise InvalidSchema(f"{what} lacks {missing[0]!r}; see Iceberg's specification")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidSchema(f"required is {value!r}; it is true or false")
    return value


def _id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidSchema(f"the field id {value!r} is no whole number")
    return value


def checked_field(source: Document) -> Document:
    _has(source, ("name", "type"), f"column {source!r}")
    doc = source.get("doc")
    if doc is not None and not isinstance(doc, str):
        raise InvalidSchema(f"column {source['name']!r} has the doc {doc!r}, which is no text")
    made = field(source["name"], checked(source["type"]), _flag(source.get("required", False)), doc)
    made["id"] = _id(source.get("id", UNNUMBERED))
    for default in ("initial-default", "write-default"):
        if source.get(default) is not None:
            made[default] = source[default]
    return made


# Numbering and walking ---------------------------------------------------------------------------------------------------
def number(type_: TypeDocument, last: int) -> tuple[TypeDocument, int, dict[int, int]]:
    """A copy with fresh ids after `last`, all fields of a struct before what is inside them (TypeUtil.assignFreshIds).

    Returns the copy, the last id given, and new ids by old ones.
    """
    copy = deepcopy(type_)
    given: dict[int, int] = {}

    def give(holder: Document, key: str) -> None:
        nonlocal last
        last += 1
        given[holder[key]] = last
        holder[key] = last

    def visit(part: TypeDocument) -> None:
        if isinstance(part, str):
            return
        if part["type"] == "struct":
            for each in part["fields"]:
                give(each, "id")
            for each in part["fields"]:
                visit(each["type"])
        elif part["type"] == "list":
            give(part, "element-id")
            visit(part["element"])
        else:
            give(part, "key-id")
            give(part, "value-id")
            visit(part["key"])
            visit(part["value"])

    visit(copy)
    return copy, last, given


def walk(type_: TypeDocument, path: tuple[str, ...] = (), parent: int | None = None) -> Iterator[Column]:
    """Every field below a type, depth first, parents before children."""
    if isinstance(type_, str):
        return
    for index, (name, field_id, inner, required, field) in enumerate(parts(type_)):
        yield Column(field_id, (*path, name), inner, required, field, index, parent)
        yield from walk(inner, (*path, name), field_id)


def parts(type_: Document) -> list[tuple[str, int, TypeDocument, bool, Document]]:
    """(name, id, type, required, the field's document) of what stands directly in a struct, list or map."""
    if type_["type"] == "struct":
        return [(f["name"], f["id"], f["type"], f["required"], f) for f in type_["fields"]]
    if type_["type"] == "list":
        return [("element", type_["element-id"], type_["element"], type_["element-required"], {})]
    return [
        ("key", type_["key-id"], type_["key"], True, {}),
        ("value", type_["value-id"], type_["value"], type_["value-required"], {}),
    ]


def check_names(type_: TypeDocument) -> None:
    """Refuse full names that are equal, or equal but for case: an engine cannot tell such columns apart.

    Raises:
        InvalidSchema: naming both columns.
    """
    seen: dict[str, str] = {}
    for column in walk(type_):
        name = column.full_name
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            how = "twice" if other == name else f"beside {other!r}, which differs by case alone"
            raise InvalidSchema(f"column {name!r} is there {how}; give each column a name of its own")


def check_version(type_: TypeDocument, format_version: int) -> None:
    """Refuse types and defaults that a table of this format version cannot have.

    Raises:
        InvalidSchema: naming the column and the version that has it.
    """
    if format_version >= 3:
        return
    for column in walk(type_):
        if isinstance(column.type, str) and is_since_v3(column.type):
            way = "microseconds (timestamp or timestamptz)" if column.type.endswith("_ns") else "another type"
            raise InvalidSchema(
                f"column {column.full_name!r} has the type {column.type}, which needs format version 3; "
                f"cast it to {way} or create the table with format version 3"
            )
        if column.field.get("initial-default") is not None or column.field.get("write-default") is not None:
            raise InvalidSchema(f"column {column.name!r} has a default, which needs format version 3; leave it out")
