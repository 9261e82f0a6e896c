"""What readers ask of a table's metadata, and of a schema that stands above files which were written under another.

Iceberg's Java library refuses to read metadata that breaks these rules, and other engines fail or answer wrongly: so nothing
that breaks one is ever written. Each rule says what is wrong and raises InvalidSchema; `problems` gathers all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lakeward.errors import InvalidInput, InvalidSchema
from lakeward.iceberg import transforms, types, values
from lakeward.iceberg.evolution import source_ids, widens
from lakeward.iceberg.types import Column, TypeDocument
from lakeward.tables.records.tables import Document

# Columns that readers add to every table themselves (MetadataColumns of Iceberg's Java library).
RESERVED_COLUMNS = {
    "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number", "_change_type",
    "_change_ordinal", "_commit_snapshot_id",
}  # fmt: skip


def problems(
    schema: Document, spec: Document, order: Document, earlier_specs: Sequence[Document], format_version: int
) -> list[str]:
    """What is wrong with a table whose current schema, spec and order are these, and which had `earlier_specs`."""
    rules: list[Callable[[], None]] = [
        lambda: check_schema(schema, format_version),
        lambda: check_current_spec(schema, spec),
        lambda: check_order(schema, order),
        lambda: check_fields_of_specs([*earlier_specs, spec]),
        *(lambda each=each: check_partition_names(schema, each) for each in [*earlier_specs, spec]),
    ]
    found = []
    for rule in rules:
        try:
            rule()
        except InvalidSchema as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


# Schemas ----------------------------------------------------------------------------------------------------------------
def check_schema(schema: Document, format_version: int) -> None:
    """Check names, types, identifier fields and defaults as readers do. Raises InvalidSchema."""
    types.check_names(schema)
    check_no_reserved_names(schema)
    types.check_version(schema, format_version)
    for column in types.walk(schema):
        if column.type == "unknown" and column.required:
            raise InvalidSchema(
                f"column {column.full_name!r} has the type unknown, whose values are all null, and cannot be required"
            )
    check_identifier_fields(schema)
    with_defaults(schema)


def check_no_reserved_names(schema: Document) -> None:
    """Check that no column has the name of one that readers add. Raises InvalidSchema."""
    for field in schema["fields"]:
        if field["name"].lower() in RESERVED_COLUMNS:
            raise InvalidSchema(
                f"column {field['name']!r} has a name that Iceberg's readers keep for a column of their own; choose another"
            )


def check_identifier_fields(schema: Document) -> None:
    """Check the identifier fields (specification, 'Identifier Field IDs'). Raises InvalidSchema."""
    columns = {column.field_id: column for column in types.walk(schema)}
    for field_id in schema.get("identifier-field-ids") or ():
        column = columns.get(field_id)
        if column is None:
            raise InvalidSchema(f"identifier field {field_id!r} is no column of the schema; use a column's id")
        wrong = _unfit_identifier(column, columns)
        if wrong:
            raise InvalidSchema(
                f"column {column.full_name!r} cannot be an identifier field: {wrong}; use required columns of other types"
            )


def _unfit_identifier(column: Column, columns: dict[int, Column]) -> str | None:
    if not isinstance(column.type, str) or column.type in ("float", "double", "variant", "unknown"):
        return f"its type is {column.type if isinstance(column.type, str) else column.type['type']}"
    if not column.required:
        return "it is optional"
    above = column.parent_id
    while above is not None:
        parent = columns[above]
        if isinstance(parent.type, str) or parent.type["type"] != "struct":
            return f"it is inside {parent.full_name!r}, a list or a map"
        if not parent.required:
            return f"it is inside {parent.full_name!r}, which is optional"
        above = parent.parent_id
    return None


def with_defaults(type_: Any) -> Any:
    """A copy of a type, or of a schema, whose defaults are in the one form in which readers take them.

    Raises:
        InvalidSchema: a default is none of its column's type, or the type has none.
    """
    if isinstance(type_, str):
        return type_
    if "fields" in type_:
        return {**type_, "fields": [_with_default(field) for field in type_["fields"]]}
    return {**type_, **{key: with_defaults(type_[key]) for key in ("element", "key", "value") if key in type_}}


def _with_default(field: Document) -> Document:
    given = {
        key: _default(field, field[key]) for key in ("initial-default", "write-default") if field.get(key) is not None
    }
    return {**field, "type": with_defaults(field["type"]), **given}


def _default(field: Document, value: Any) -> Any:
    name, type_ = field["name"], field["type"]
    if not isinstance(type_, str) or type_.startswith(("variant", "unknown", "geometry", "geography")):
        kind = type_ if isinstance(type_, str) else type_["type"]
        raise InvalidSchema(
            f"column {name!r} of type {kind} has a default, which such columns cannot have; leave it out"
        )
    try:
        raw = values.from_json(type_, value)
    except InvalidInput as error:
        raise InvalidSchema(
            f"column {name!r} has the default {str(value)[:80]!r}, which is no {type_}; write it as Iceberg's single values "
            "are written in JSON"
        ) from error
    if isinstance(raw, float) and not math.isfinite(raw):
        raise InvalidSchema(f"column {name!r} has the default {value!r}, which is no finite {type_}")
    return values.to_json(type_, raw)


# Partition specs and sort orders ----------------------------------------------------------------------------------------
def check_partition_names(schema: Document, spec: Document) -> None:
    """Check that no partition field of a spec, be it an earlier one, has the name of a column. Raises InvalidSchema.

    Only the field of a column itself may have the column's name. One whose own column is gone is in nobody's way.
    """
    columns = {column.full_name: column for column in types.walk(schema)}
    there = {column.field_id for column in columns.values()}
    for field in spec["fields"]:
        clash, sources = columns.get(field["name"]), source_ids(field)
        is_own = clash is not None and sources == [clash.field_id] and field["transform"] in ("identity", "void")
        if clash is not None and not is_own and there.issuperset(sources):
            raise InvalidSchema(
                f"column {clash.full_name!r} has the name of a partition field of the table ({field['transform']} of another "
                f"column, spec {spec['spec-id']}), and engines could not read the table; give one of them another name"
            )


def check_current_spec(schema: Document, spec: Document) -> None:
    """Check that each field's column is there, and its transform takes it. Raises InvalidSchema."""
    columns = {column.field_id: column for column in types.walk(schema)}
    for field in spec["fields"]:
        column = columns.get(source_ids(field)[0])
        if field["transform"] == "void":
            continue
        if column is None:
            raise InvalidSchema(
                f"partition field {field['name']!r} is made from a column that the schema does not have; change the "
                "partitions first"
            )
        if not transforms.applies(field["transform"], column.type):
            raise InvalidSchema(
                f"partition field {field['name']!r}: {field['transform']} does not take column {column.full_name!r}, whose "
                f"type is {column.type}"
            )


def check_fields_of_specs(specs: Sequence[Document]) -> None:
    """Check that no id of a partition field stands for two. Raises InvalidSchema."""
    known: dict[int, tuple[list[int], str]] = {}
    for spec in specs:
        ids = [field["field-id"] for field in spec["fields"]]
        for field in spec["fields"]:
            says = (source_ids(field), field["transform"])
            is_void = "void" in (field["transform"], known.get(field["field-id"], ([], ""))[1])
            if ids.count(field["field-id"]) > 1 or (known.setdefault(field["field-id"], says) != says and not is_void):
                raise InvalidSchema(
                    f"partition field {field['name']!r} has the field-id {field['field-id']}, which another field has; leave "
                    "field-id out to be given the next"
                )


def check_order(schema: Document, order: Document) -> None:
    """Check that each column of the order is there, and can be sorted so. Raises InvalidSchema."""
    columns = {column.field_id: column for column in types.walk(schema)}
    for field in order["fields"]:
        column = columns.get(source_ids(field)[0])
        if column is None:
            raise InvalidSchema(
                "the sort order is made from a column that the schema does not have; change the sort order first"
            )
        if not transforms.applies(field["transform"], column.type):
            raise InvalidSchema(
                f"the sort order: {field['transform']} does not take column {column.full_name!r}, whose type is {column.type}"
            )
        if field["direction"] not in ("asc", "desc") or not re.fullmatch("nulls-(first|last)", field["null-order"]):
            raise InvalidSchema(
                f"the sort order of column {column.full_name!r} is {field['direction']!r} with {field['null-order']!r}; "
                "write asc or desc, and nulls-first or nulls-last"
            )


# A schema above files of another ----------------------------------------------------------------------------------------
def unreadable(schema: Document, written: Document) -> str | None:
    """Why a reader who knows `schema` cannot read what was written under `written`; None where it can.

    Columns are known by id: those that the file lacks are null, or what their initial default says.
    """
    return next(_differences(schema, written, ""), None)


def _differences(now: TypeDocument, then: TypeDocument, path: str) -> Iterator[str]:
    if isinstance(now, str) or isinstance(then, str):
        if not widens(then, now):
            shown = [each if isinstance(each, str) else each["type"] for each in (then, now)]
            yield f"column {path!r} is {shown[0]} there, and cannot be read as {shown[1]}"
        return
    if now["type"] != then["type"]:
        yield f"column {path!r} is a {then['type']} there, and cannot be read as a {now['type']}"
        return
    before = {part[1]: part for part in types.parts(then)}
    for name, field_id, type_, required, field in types.parts(now):
        full = f"{path}.{name}" if path else name
        old = before.get(field_id)
        if old is None:
            if required and field.get("initial-default") is None:
                yield f"column {full!r} is required, and not there"
            continue
        if required and not old[3]:
            yield f"column {full!r} is required, and optional there"
        yield from _differences(type_, old[2], full)


def lost_sources(schema: Document, spec: Document) -> list[str]:
    """Partition fields of a spec whose column a schema does not have.

    Files partitioned by a column that is gone have partitions of unknown type, with which some engines fail.
    """
    there = {column.field_id for column in types.walk(schema)}
    return [
        field["name"]
        for field in spec["fields"]
        if field["transform"] != "void" and not there.issuperset(source_ids(field))
    ]
