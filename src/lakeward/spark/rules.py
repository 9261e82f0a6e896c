"""What a row of a DataFrame may break though its columns have the table's types, as SQL. Needs no running Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from lakeward.arrow.accepted import UUID_TEXT
from lakeward.arrow.nested import null_in_required
from lakeward.iceberg import types
from lakeward.iceberg.types import TypeDocument
from lakeward.spark.columns import quoted
from lakeward.tables.records.tables import Document

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Kind = Literal["null", "value", "damaged"]

BROKEN = "lakeward: a row breaks a rule: "  # then the rule's message, on one line

_UUID = f"^(?:{UUID_TEXT})\\\\z"  # in SQL a backslash is written twice
_SHOWN = 200  # characters of a value that an error shows


class RowRule(NamedTuple):
    """A rule for a value that a row has, at any depth. `broken`: SQL that is true for a row that breaks it, else false."""

    path: str
    kind: Kind
    broken: str
    type: str = ""

    @property
    def reason(self) -> str:
        return "null_in_required" if self.kind == "null" else "wrong_type"

    @property
    def message(self) -> str:
        if self.kind == "null":
            return str(null_in_required(self.path))
        if self.kind == "value":
            return f"column {self.path!r} holds a value that is no {self.type}"
        return f"column {self.path!r} is damaged: it holds a text that is no UTF-8; write it as binary, or decode it"


def row_rules(have: StructType, schema: Document) -> list[list[RowRule]]:
    """The rules of each column, for rows that have a table's columns in its order, with the types that Spark has for them:
    a text for a uuid, and bytes of any length for a fixed[n].
    """
    pairs = zip(have.fields, schema["fields"], strict=True)
    return [
        list(_of_value(given.dataType, field["type"], given.nullable and field["required"], quoted(given.name), field["name"], 0))
        for given, field in pairs
    ]  # fmt: skip


def checked(have: StructType, schema: Document, rules: Sequence[Sequence[RowRule]]) -> list[str]:
    """What to select so that a row with a wrong or a damaged value fails the job with BROKEN and what it is, and so that a
    uuid is spelled as Iceberg's writer reads it. Nulls are found by Spark itself."""
    selected = []
    for given, field, of_column in zip(have.fields, schema["fields"], rules, strict=True):
        name = quoted(given.name)
        value = _as_read(field["type"], name, 0) or name
        cases = " ".join(f"WHEN {rule.broken} THEN {_raised(rule, name)}" for rule in of_column if rule.kind != "null")
        value = f"CASE {cases} ELSE {value} END" if cases else value
        selected.append(name if value == name else f"{value} AS {name}")
    return selected


def _raised(rule: RowRule, column: str) -> str:
    told = (BROKEN + rule.message).replace("\\", "\\\\").replace("'", "\\'")
    if rule.kind == "damaged":
        return f"raise_error('{told}\\n')"
    return f"raise_error(concat('{told}: ', left(to_json(struct({column})), {_SHOWN}), '\\n'))"


def _of_value(
    have: DataType, wanted: TypeDocument, may_be_null: bool, sql: str, path: str, depth: int
) -> Iterator[RowRule]:
    """Rules of one value, and of what is in it if there is one. `depth`: of functions, whose parameters have names of their own."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if may_be_null:
        yield RowRule(path, "null", f"{sql} IS NULL")
    if isinstance(have, StringType):
        yield RowRule(path, "damaged", f"coalesce(NOT is_valid_utf8({sql}), false)")
    if isinstance(wanted, str):
        yield from _of_primitive(wanted, sql, path)
        return
    inner: Iterator[RowRule] = iter(())
    if isinstance(have, StructType):
        inner = chain.from_iterable(
            _of_value(given.dataType, field["type"], given.nullable and field["required"], f"{sql}.{quoted(given.name)}",
                      f"{path}.{field['name']}", depth)
            for given, field in zip(have.fields, wanted["fields"], strict=True)
        )  # fmt: skip
    elif isinstance(have, ArrayType):
        may = have.containsNull and wanted["element-required"]
        inner = _of_each(have.elementType, wanted["element"], may, sql, f"{path}.element", depth)
    elif isinstance(have, MapType):
        may = have.valueContainsNull and wanted["value-required"]
        inner = chain(
            _of_each(have.keyType, wanted["key"], False, f"map_keys({sql})", f"{path}.key", depth),
            _of_each(have.valueType, wanted["value"], may, f"map_values({sql})", f"{path}.value", depth),
        )
    for rule in inner:
        yield rule._replace(broken=f"({sql} IS NOT NULL AND {rule.broken})")


def _of_primitive(type_: str, sql: str, path: str) -> Iterator[RowRule]:
    if type_ == "uuid":
        yield RowRule(path, "value", f"coalesce(is_valid_utf8({sql}) AND NOT rlike({sql}, '{_UUID}'), false)", type_)
    if (length := types.fixed_length(type_)) is not None:
        yield RowRule(path, "value", f"coalesce(octet_length({sql}) != {length}, false)", type_)


def _of_each(
    have: DataType, wanted: TypeDocument, may_be_null: bool, sql: str, path: str, depth: int
) -> Iterator[RowRule]:
    one = f"x{depth}"
    for rule in _of_value(have, wanted, may_be_null, one, path, depth + 1):
        yield rule._replace(broken=f"exists({sql}, {one} -> {rule.broken})")


def _as_read(type_: TypeDocument, sql: str, depth: int) -> str | None:
    """SQL for a value with each uuid in it as '8-4-4-4-12'; None where it has none."""
    if isinstance(type_, str):
        return f"regexp_replace({sql}, '{_UUID}', '$1-$2-$3-$4-$5')" if type_ == "uuid" else None
    one = f"x{depth}"
    if type_["type"] == "struct":
        fields = [(field["name"], f"{sql}.{quoted(field['name'])}", field["type"]) for field in type_["fields"]]
        made = [(name, part, _as_read(inner, part, depth)) for name, part, inner in fields]
        if all(changed is None for _, _, changed in made):
            return None
        inner = ", ".join(f"{changed or part} AS {quoted(name)}" for name, part, changed in made)
        return f"IF({sql} IS NULL, NULL, STRUCT({inner}))"
    if type_["type"] == "list":
        element = _as_read(type_["element"], one, depth + 1)
        return None if element is None else f"TRANSFORM({sql}, {one} -> {element})"
    key, value = _as_read(type_["key"], f"k{depth}", depth + 1), _as_read(type_["value"], one, depth + 1)
    text = sql if key is None else f"TRANSFORM_KEYS({sql}, (k{depth}, {one}) -> {key})"
    text = text if value is None else f"TRANSFORM_VALUES({text}, (k{depth}, {one}) -> {value})"
    return None if text == sql else text
