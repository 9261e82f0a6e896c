"""Partition specs and sort orders as Iceberg documents, partition values, and partition paths."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import chain, count
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from lakeward.errors import ColumnNotFound, FileRefused, InvalidInput, InvalidSchema
from lakeward.iceberg import checks, transforms, types, values
from lakeward.iceberg.evolution import find_column, source_ids
from lakeward.iceberg.types import Column, TypeDocument
from lakeward.tables.records.files import PartitionValues
from lakeward.tables.records.tables import FIRST_PARTITION_ID, NO_PARTITION_ID, Document

_QUOTED = r"`(?:[^`]|``)+`"
_CALL = re.compile(
    rf"\s*(?P<transform>identity|void|years?|months?|days?|date|hours?|date_hour|bucket|truncate)\s*"
    rf"(?:\[\s*(?P<outer>\d+)\s*\]\s*\(\s*|\(\s*(?:(?P<inner>\d+)\s*,\s*)?)(?P<column>{_QUOTED}|.+?)\s*"
    rf"(?:,\s*(?P<last>\d+)\s*)?\)\s*",
    re.IGNORECASE | re.DOTALL,
)
_KINDS = {"years": "year", "months": "month", "days": "day", "date": "day", "hours": "hour", "date_hour": "hour"}
_SORT = re.compile(
    r"(?P<term>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE | re.DOTALL
)


def partition_spec(
    partition_by: Sequence[str | Document],
    schema: Document,
    spec_id: int = 0,
    last_partition_id: int = NO_PARTITION_ID,
) -> tuple[Document, int]:
    """A partition spec {"spec-id", "fields"} over a schema, and the last partition field id.

    `partition_by`: texts such as 'month' (a column), 'identity(x)', 'day(ts)', 'bucket(16, id)', 'bucket[16](id)',
    'truncate(4, name)', a name with odd characters in backquotes, or fields as documents ({"source-id", "transform"}, with
    "name" and "field-id" where they are to be kept). A text that is a column's name as a whole means that column.
    Names are Iceberg's: x, ts_day, id_bucket, name_trunc, x_null.

    Raises:
        InvalidSchema: an unknown transform, one that does not take the column's type, a column inside a list or a map, one
            transform twice on a column, a name that a column or another field has, or values that engines cannot read.
        ColumnNotFound: a column is not there.
    """
    spec, last_partition_id = _spec(partition_by, schema, spec_id, last_partition_id)
    columns = {c.field_id: c for c in types.walk(schema)}
    for field in spec["fields"]:
        _check_readable(field, columns)
    return spec, last_partition_id


def _check_readable(field: Document, columns: dict[int, Column]) -> None:
    """Refuse partitions of values that engines cannot read back. Raises InvalidSchema."""
    column = columns.get(field["source-id"])
    if column is None or field["transform"] != "identity":
        return
    if column.type == "uuid":
        why = "PyIceberg finds no rows in partitions of uuids"
    elif types.fixed_length(column.type) is not None:
        why = "Spark and Flink cannot read a table that is partitioned by such values"
    else:
        return
    raise InvalidSchema(
        f"column {column.full_name!r} is a {column.type}, and {why}; partition by bucket(16, {column.full_name})"
    )


def _spec(
    partition_by: Sequence[str | Document], schema: Document, spec_id: int, last_partition_id: int
) -> tuple[Document, int]:
    columns = {c.field_id: c for c in types.walk(schema)}
    fields: list[Document] = []
    for each in partition_by:
        if not isinstance(each, (str, dict)):
            raise InvalidSchema(f"partition field {each!r} is neither a text such as 'day(ts)' nor a field's document")
        field = _field_document(each, columns) if isinstance(each, dict) else _parsed(each, schema)
        if "field-id" not in field:
            last_partition_id += 1
            field = {**field, "field-id": last_partition_id}
        _check_id(field["field-id"])
        last_partition_id = max(last_partition_id, field["field-id"])
        _check(field, fields, columns)
        fields.append({key: field[key] for key in ("source-id", "field-id", "transform", "name")})
    spec = {"spec-id": spec_id, "fields": fields}
    checks.check_current_spec(schema, spec)
    checks.check_partition_names(schema, spec)
    return spec, last_partition_id


def _check_id(field_id: Any) -> None:
    if isinstance(field_id, bool) or not isinstance(field_id, int) or not FIRST_PARTITION_ID <= field_id < 1 << 31:
        raise InvalidSchema(
            f"field-id {field_id!r} of a partition field is no whole number from {FIRST_PARTITION_ID} on; leave it out"
        )


def _parsed(text: str, schema: Document) -> Document:
    transform, column = _term(text, schema)
    return {"source-id": column.field_id, "transform": transform, "name": _name(column.full_name, transform)}


def _term(text: str, schema: Document) -> tuple[str, Column]:
    """The transform and the column of a partition or sort text; the column's whole name goes before any call."""
    try:
        return "identity", find_column(schema, text.strip())
    except ColumnNotFound as error:
        match = _CALL.fullmatch(text)
        if match is None:
            if re.fullmatch(_QUOTED, text.strip()):
                return "identity", find_column(schema, _unquoted(text.strip()))
            raise ColumnNotFound(f"{error}; a transform is written like day(ts) or bucket(16, id)") from None
    kind = _KINDS.get(match["transform"].lower(), match["transform"].lower())
    number = match["outer"] or match["inner"] or match["last"]
    if (kind in ("bucket", "truncate")) != (number is not None):
        way = f"{kind}(16, column)" if number is None else f"{kind}(column)"
        raise InvalidSchema(f"transform {text!r} has a number too much or too little; write {way}")
    transform = kind if number is None else f"{kind}[{int(number)}]"
    return transform, find_column(schema, _unquoted(match["column"]))


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if re.fullmatch(_QUOTED, name) else name


def _name(column: str, transform: str) -> str:
    kind, _ = transforms.width(transform)
    suffix = {"identity": "", "bucket": "_bucket", "truncate": "_trunc", "void": "_null"}.get(kind, f"_{kind}")
    return column + suffix


def _field_document(field: Document, columns: dict[int, Column]) -> Document:
    if not {"source-id", "source-ids"} & field.keys() or "transform" not in field:
        raise InvalidSchema(f"partition field {field!r} is not whole; give at least source-id and transform")
    ids, transform = source_ids(field), field["transform"]
    if len(ids) != 1 or (ids[0] not in columns and transform != "void"):
        raise ColumnNotFound(
            f"partition field {field!r} is made from {ids}, which is no column of the schema; use a column's id"
        )
    name = field.get("name") or _name(columns[ids[0]].full_name, transform)
    return {**field, "source-id": ids[0], "name": name}


def _check(field: Document, before: list[Document], columns: dict[int, Column]) -> None:
    transform, name = field["transform"], field["name"]
    kind, _ = transforms.width(transform)
    column = columns.get(field["source-id"])
    if column is None:
        return  # void of a dropped column
    above = column.parent_id
    while above is not None:
        parent = columns[above]
        if isinstance(parent.type, str) or parent.type["type"] != "struct":
            raise InvalidSchema(
                f"column {column.full_name!r} is inside a list or a map; partition by a column that has one value a row"
            )
        above = parent.parent_id
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"partition field {field!r} has no name; leave it out to be given one")
    for other in before:
        if other["name"] == name:
            raise InvalidSchema(f"partition field {name!r} is there twice; give each field a name of its own")
        times = ("year", "month", "day", "hour")
        same = other["transform"] == transform or (kind in times and other["transform"] in times)
        if other["source-id"] == field["source-id"] and same and kind != "void":
            raise InvalidSchema(
                f"partition field {name!r} says of column {column.full_name!r} what {other['name']!r} says already; leave one out"
            )


def evolved_spec(
    partition_by: Sequence[str | Document], schema: Document, earlier: Sequence[Document], last_partition_id: int
) -> tuple[Document, int]:
    """A partition spec for a table that had others, oldest first, and the last partition field id.

    A spec that the table had is the same one again. A field of an earlier spec (one transform of one column) keeps its id
    and name; ids are never given to another (specification, 'Partition Evolution'). A name that another field had gets a
    number: engines show the fields of all specs in one struct.

    Raises: as `partition_spec`.
    """
    columns = {c.field_id: c for c in types.walk(schema)}
    known = {(f["source-id"], f["transform"]): f for spec in earlier for f in spec["fields"]}
    names = {f["name"] for spec in earlier for f in spec["fields"]}
    fields: list[str | Document] = []
    for each in partition_by:
        if not isinstance(each, (str, dict)):
            fields.append(each)  # refused below
            continue
        given = each if isinstance(each, dict) else {}
        field = _field_document(each, columns) if isinstance(each, dict) else _parsed(each, schema)
        old = known.get((field["source-id"], field["transform"]))
        if old is not None:
            field = {**field, "field-id": old["field-id"], "name": given.get("name", old["name"])}
        elif "name" not in given and field["name"] in names:
            field = {**field, "name": _free_name(field, names)}
        if old is None:  # a table that has such partitions keeps them
            _check_readable(field, columns)
        fields.append({**field, **given})
    spec, last = _spec(fields, schema, 0, last_partition_id)
    same = [s["spec-id"] for s in earlier if s["fields"] == spec["fields"]]
    spec_id = same[0] if same else max((s["spec-id"] for s in earlier), default=-1) + 1
    return {**spec, "spec-id": spec_id}, last


def _free_name(field: Document, names: Container[str]) -> str:
    """'id_bucket_8' where 'id_bucket' was a field of another number of buckets."""
    _, number = transforms.width(field["transform"])
    wanted = [f"{field['name']}_{number}"] if number is not None else []
    numbered = (f"{field['name']}_{i}" for i in count(2))
    return next(name for name in chain(wanted, numbered) if name not in names)


def sort_order(sort_by: Sequence[str | Document], schema: Document, order_id: int = 0) -> Document:
    """A sort order {"order-id", "fields"}: texts such as 'col', 'col desc', 'day(ts) asc nulls last', or documents.

    Nulls come first ascending and last descending unless said otherwise, as in Iceberg. An empty order has the id 0, any
    other one at least 1 (specification, 'Sort Orders').

    Raises:
        InvalidSchema: an unknown transform, or one that does not take the column's type.
        ColumnNotFound: a column is not there.
    """
    fields = [_sort_field(each, schema) for each in sort_by]
    order = {"order-id": max(order_id, 1) if fields else 0, "fields": fields}
    checks.check_order(schema, order)
    return order


def _sort_field(source: str | Document, schema: Document) -> Document:
    if isinstance(source, str):
        match = _SORT.fullmatch(source.strip())
        assert match is not None or not source.strip()
        if match is None:
            raise InvalidSchema("a sort column is empty; write for example 'id' or 'ts desc'")
        try:
            transform, column = _term(source, schema)  # a column may be called 'a desc'
            direction, nulls = "asc", None
        except ColumnNotFound:
            transform, column = _term(match["term"], schema)
            direction, nulls = (match["direction"] or "asc").lower(), match["nulls"]
    else:
        columns = {c.field_id: c for c in types.walk(schema)}
        found = columns.get(source_ids(source)[0])
        if found is None:
            raise ColumnNotFound(f"sort field {source!r} is made from no column of the schema; use a column's id")
        transform, column, direction = source["transform"], found, source["direction"]
        nulls = source["null-order"].removeprefix("nulls-")
    null_order = f"nulls-{nulls.lower()}" if nulls else ("nulls-first" if direction == "asc" else "nulls-last")
    return {"transform": transform, "source-id": column.field_id, "direction": direction, "null-order": null_order}


def evolved_order(sort_by: Sequence[str | Document], schema: Document, earlier: Sequence[Document]) -> Document:
    """A sort order for a table that had others: one that it had is the same one again. Raises: as `sort_order`."""
    order = sort_order(sort_by, schema, max((o["order-id"] for o in earlier), default=0) + 1)
    return next((o for o in earlier if o["fields"] == order["fields"]), order)


# Values --------------------------------------------------------------------------------------------------------------------
def partition_fields(schema: Document, spec: Document) -> list[tuple[int, str, str, str, str]]:
    """(field id, name, transform, source type, result type) of each field of a spec.

    A field whose column the schema no longer has is void; its type is then 'unknown' in both places.
    """
    columns = {c.field_id: c.type for c in types.walk(schema)} if spec["fields"] else {}
    result = []
    for field in spec["fields"]:
        source = columns.get(source_ids(field)[0], "unknown")
        text = source if isinstance(source, str) else "unknown"
        kept = transforms.result_type(field["transform"], text)
        result.append((field["field-id"], field["name"], field["transform"], text, kept))
    return result


def partition_value(transform: str, source_type: TypeDocument, value: Any) -> Any:
    """The single-value JSON of a transform's result for a Python value or an Arrow scalar of the source type.

    Raises:
        InvalidInput: the value is none of the type, or no manifest holds the result. InvalidSchema: the transform does not
            take the type.
    """
    if not transforms.applies(transform, source_type) or not isinstance(source_type, str):
        raise InvalidSchema(f"transform {transform} does not take values of {source_type}")
    result = transforms.transform_value(transform, source_type, values.from_python(source_type, value))
    transforms.check_held(transform, source_type, result)
    return values.to_json(transforms.result_type(transform, source_type), result)


def avro_value(transform: str, source_type: str, json_value: Any) -> Any:
    """The form that a manifest holds of a partition's value in JSON.

    Raises:
        InvalidInput: the value is none of the transform's result type, or no manifest holds it.
    """
    raw = transforms.result_from_json(transform, source_type, json_value)
    transforms.check_held(transform, source_type, raw)
    return values.to_avro(transforms.result_type(transform, source_type), raw)


def canonical_partition(schema: Document, spec: Document, partition: PartitionValues) -> PartitionValues:
    """A partition in the one spelling that the registry keeps of each value: see `iceberg.values`, JSON.

    Writers spell values in their own ways: Iceberg's Java has hex in capitals, and 0.1 for the float nearest to it.

    Raises:
        FileRefused: wrong_partition: a field of the spec has no value, another one has, a value is none of its field's type,
            or no manifest holds it.
    """
    return canonical_values(partition_fields(schema, spec), partition)


def canonical_values(fields: Sequence[tuple[int, str, str, str, str]], partition: PartitionValues) -> PartitionValues:
    """As `canonical_partition`, for many partitions of the same fields, as `partition_fields` gives them."""
    if partition.keys() != {field_id for field_id, *_ in fields}:
        wanted = ", ".join(f"{name} ({field_id})" for field_id, name, *_ in fields) or "none"
        raise FileRefused(
            "wrong_partition",
            f"partition {partition!r} must have exactly the fields of its spec: {wanted}",
        )
    result: PartitionValues = {}
    for field_id, name, transform, source, kept in fields:
        try:
            raw = transforms.result_from_json(transform, source, partition[field_id])
            transforms.check_held(transform, source, raw)
        except InvalidInput as error:
            raise FileRefused("wrong_partition", f"partition field {name!r}: {error}") from error
        result[field_id] = values.to_json(kept, raw)
    return result


def partition_from_path(schema: Document, spec: Document, path: str) -> PartitionValues:
    """The partition that `partition_path` shows so.

    Raises:
        InvalidInput: the path is none of the spec's, or more partitions than one have it.
    """
    fields, parts = partition_fields(schema, spec), path.split("/")
    wanted = "/".join(f"{quote_plus(name)}=..." for _, name, *_ in fields)
    names = [unquote_plus(part.partition("=")[0]) for part in parts]
    if names != [name for _, name, *_ in fields]:
        raise InvalidInput(
            f"partition {path!r} is none of the table's; write {wanted}, as `lakeward files TABLE` shows it"
        )
    result: PartitionValues = {}
    for (field_id, name, transform, source, kept), part in zip(fields, parts, strict=True):
        text = unquote_plus(part.partition("=")[2])
        if text == "null" and kept == "string":
            raise InvalidInput(
                f"partition {path!r} may mean null or the text 'null' in {name!r}; give a dict: {{{name!r}: None, ...}}"
            )
        try:
            raw = None if text == "null" else transforms.from_human(transform, source, text)
        except InvalidInput as error:
            raise InvalidInput(f"partition {path!r}: {error}") from error
        result[field_id] = values.to_json(kept, raw)
    return result


def partition_path(schema: Document, spec: Document, partition: PartitionValues) -> str:
    """A partition for people: 'month=1/origin=JFK', names and values URL-escaped, 'null' for null; '' if unpartitioned.

    Null and the text 'null' look alike in it.

    Raises:
        InvalidInput: a value is none of its field's type.
    """
    parts = []
    for field_id, name, transform, source, _ in partition_fields(schema, spec):
        raw = transforms.result_from_json(transform, source, partition.get(field_id))
        parts.append(f"{quote_plus(name)}={quote_plus(transforms.human(transform, source, raw))}")
    return "/".join(parts)
