"""Changes of a schema by Iceberg's rules (specification, 'Schema Evolution').

Each function takes a schema document and returns a new one, with the schema-id it had. Ids are never given twice, whatever is
dropped: who adds a column gives the last id that the table ever gave. A nested column is named by its dotted path, or by a tuple where a name itself holds a dot; parts of lists and maps are 'element', 'key' and 'value'.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import TypeAlias

from lakeward.errors import ColumnNotFound, InvalidSchema
from lakeward.iceberg import types
from lakeward.iceberg.type_text import text_of
from lakeward.iceberg.types import Column, TypeDocument
from lakeward.tables.records.tables import Document

ColumnPath: TypeAlias = "str | tuple[str, ...]"


def find_column(schema: Document, path: ColumnPath) -> Column:
    """The column of this path; names are compared exactly.

    Raises:
        ColumnNotFound: naming the columns that differ by case alone, or else those that are there.
    """
    wanted = path if isinstance(path, str) else tuple(path)
    columns = list(types.walk(schema))
    for column in columns:
        if wanted == (column.full_name if isinstance(wanted, str) else column.path):
            return column
    shown = wanted if isinstance(wanted, str) else ".".join(wanted)
    close = [c.full_name for c in columns if c.full_name.lower() == shown.lower()]
    there = close or [c.full_name for c in columns][:20]
    raise ColumnNotFound(
        f"column {shown!r} is not in the table; {'did you mean' if close else 'it has'} {', '.join(there)}"
    )


def add_column(
    schema: Document,
    last_column_id: int,
    path: ColumnPath,
    type_: TypeDocument,
    doc: str | None = None,
    format_version: int = 2,
) -> tuple[Document, int]:
    """The schema with an optional column at the end of a struct, and the last column id. A parent that is a list or a map means
    the struct inside it.

    Raises:
        InvalidSchema: the name is taken or empty, or the type is unknown or of a later format version.
        ColumnNotFound: the parent is not there.
    """
    result = deepcopy(schema)
    parent, name = _parent(result, path)
    holder = _struct_of(result, parent)
    _refuse_taken(holder["fields"], name)
    new = types.field(name, types.parse_text(type_) if isinstance(type_, str) else types.checked(type_), False, doc)
    numbered, last, _ = types.number({"type": "struct", "fields": [new]}, last_column_id)
    assert not isinstance(numbered, str)
    holder["fields"].append(numbered["fields"][0])
    types.check_names(result)
    types.check_version(result, format_version)
    return result, last


def _refuse_taken(siblings: Iterable[Document], name: str) -> None:
    """Refuse a name that a column beside it has, or one that differs from it by case alone. Raises InvalidSchema."""
    for field in siblings:
        if field["name"].lower() == name.lower():
            by_case = "" if field["name"] == name else ", which differs by case alone"
            raise InvalidSchema(
                f"the name {name!r} is taken by the column {field['name']!r}, of type {text_of(field['type'])}{by_case}; choose "
                "another name, or rename or drop that column first"
            )


def drop_column(
    schema: Document, path: ColumnPath, specs: Iterable[Document] = (), sort_orders: Iterable[Document] = ()
) -> Document:
    """Drop a column with all that is inside it.

    `specs` and `sort_orders` are the documents that must go on working: none of their source columns may be dropped.

    Raises:
        InvalidSchema: a partition, a sort order or the identifier uses the column, or nothing would be left beside it.
        ColumnNotFound: it is not there.
    """
    result = deepcopy(schema)
    column = find_column(result, path)
    gone = {column.field_id, *(c.field_id for c in types.walk(column.type))}
    for of, documents in (("partition", specs), ("sort order", sort_orders)):
        if any(gone & set(source_ids(f)) for d in documents for f in d["fields"]):
            raise InvalidSchema(
                f"column {column.full_name!r} cannot be dropped: the table's {of} uses it; change the {of} first"
            )
    if gone & set(result.get("identifier-field-ids", ())):
        raise InvalidSchema(f"column {column.full_name!r} cannot be dropped: it is an identifier field of the table")
    fields = _siblings(result, column)
    if len(fields) == 1:
        raise InvalidSchema(
            f"column {column.full_name!r} cannot be dropped: it is the only one in its place; add another first"
        )
    del fields[column.index]
    return result


def rename_column(schema: Document, path: ColumnPath, new_name: str) -> Document:
    """Give a column another name; its id, and so its data, stays.

    Raises:
        InvalidSchema: the name is taken (case does not tell names apart) or empty, or the column is a part of a list or map.
        ColumnNotFound: it is not there.
    """
    result = deepcopy(schema)
    column = find_column(result, path)
    field = _siblings(result, column)[column.index]
    types.field(new_name, "int")  # checks the name
    _refuse_taken([each for each in _siblings(result, column) if each is not field], new_name)
    field["name"] = new_name
    types.check_names(result)
    return result


def widen_column(schema: Document, path: ColumnPath, new_type: TypeDocument) -> Document:
    """Change a column's type to a wider one: int to long, float to double, a decimal to a higher precision of its scale.

    These hold in format versions 2 and 3. What version 3 allows besides (date to timestamp) is not offered: engines do not
    read it yet. The type that the column has is accepted and changes nothing.

    Raises:
        InvalidSchema: any other change, or the column is the key of a map.
        ColumnNotFound: it is not there.
    """
    result = deepcopy(schema)
    column = find_column(result, path)
    wanted = types.parse_text(new_type) if isinstance(new_type, str) else types.checked(new_type)
    if not widens(column.type, wanted):
        raise InvalidSchema(
            f"column {column.full_name!r} cannot become {wanted} from {column.type}; Iceberg widens int to long, float to double "
            "and a decimal's precision: for any other change add a new column"
        )
    holder, key = _holder(result, column)
    if key == "key" and wanted != column.type:
        raise InvalidSchema(
            f"column {column.full_name!r} is the key of a map, whose type cannot change; add a new column"
        )
    holder[key] = wanted
    return result


def move_column(
    schema: Document, path: ColumnPath, *, first: bool = False, after: str | None = None, before: str | None = None
) -> Document:
    """Move a column among its siblings; `after` and `before` are the name (not the path) of one of them.

    Raises:
        InvalidSchema: not exactly one place is given, or it is the column itself, or the column is part of a list or map.
        ColumnNotFound: the column or the sibling is not there.
    """
    if [first, after is not None, before is not None].count(True) != 1:
        raise InvalidSchema(f"say one place for column {path!r}: first=True, after='name' or before='name'")
    result = deepcopy(schema)
    column = find_column(result, path)
    fields = _siblings(result, column)
    moved = fields.pop(column.index)
    beside = after if after is not None else before
    if beside == moved["name"]:
        raise InvalidSchema(f"column {column.full_name!r} cannot be moved beside itself; name another column")
    names = [f["name"] for f in fields]
    if beside is not None and beside not in names:
        raise ColumnNotFound(f"column {beside!r} is not beside {column.full_name!r}; there are {', '.join(names)}")
    at = 0 if beside is None else names.index(beside) + (after is not None)
    fields.insert(at, moved)
    return result


def source_ids(field: Document) -> list[int]:
    """The source columns of a partition or sort field (format version 3 may name several)."""
    return list(field["source-ids"]) if "source-ids" in field else [field["source-id"]]


# Where a column stands -----------------------------------------------------------------------------------------------------
def _parent(schema: Document, path: ColumnPath) -> tuple[Column | None, str]:
    if not isinstance(path, str):
        parts = tuple(path)
        if not parts:
            raise InvalidSchema("the path of the new column is empty; give its name")
        return (find_column(schema, parts[:-1]) if parts[:-1] else None), parts[-1]
    before, dot, name = path.rpartition(".")
    if not dot:
        return None, path
    try:
        return find_column(schema, before), name
    except ColumnNotFound as error:
        raise ColumnNotFound(
            f"column {before!r}, the parent of {path!r}, is not in the table; for a column whose name holds a dot give ({path!r},)"
        ) from error


def _struct_of(schema: Document, parent: Column | None) -> Document:
    if parent is None:
        return schema
    type_ = parent.type
    if not isinstance(type_, str) and type_["type"] in ("list", "map"):
        type_ = type_["element" if type_["type"] == "list" else "value"]
    if isinstance(type_, str) or type_["type"] != "struct":
        raise InvalidSchema(
            f"column {parent.full_name!r} is no struct, so nothing can be added to it; its type is {parent.type}"
        )
    return type_


def _container(schema: Document, column: Column) -> Document:
    """The struct, list or map document that the column stands in. Types of columns are the schema's own parts, not copies."""
    if column.parent_id is None:
        return schema
    parent = next(c for c in types.walk(schema) if c.field_id == column.parent_id)
    assert not isinstance(parent.type, str)
    return parent.type


def _siblings(schema: Document, column: Column) -> list[Document]:
    container = _container(schema, column)
    if container["type"] != "struct":
        raise InvalidSchema(
            f"column {column.full_name!r} is a part of a {container['type']}, which has it by its nature"
        )
    fields: list[Document] = container["fields"]
    return fields


def _holder(schema: Document, column: Column) -> tuple[Document, str]:
    container = _container(schema, column)
    if container["type"] == "struct":
        return container["fields"][column.index], "type"
    return container, column.name


def widens(old: TypeDocument, new: TypeDocument) -> bool:
    """Whether a type becomes another one, or stays, without a value being lost."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    if old == new or (old, new) in (("int", "long"), ("float", "double")):
        return True
    before, after = types.decimal_parts(old), types.decimal_parts(new)
    return before is not None and after is not None and after[1] == before[1] and after[0] >= before[0]
