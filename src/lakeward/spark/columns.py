"""Match a Spark DataFrame's columns to a table's, by name, before anything is written. Needs no running Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeward.errors import FileRefused, InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, MapType, StructField, StructType


def matched_columns(
    have: StructType, wanted: StructType, table: str, partition_sources: Iterable[str] = ()
) -> list[str] | None:
    """What to select from a DataFrame so that it has exactly the table's columns, in its order and with its types.

    Columns, and the fields of structs at any depth, are found by name: as written, else without regard to case. A column
    that is missing becomes its default, or null where the table allows it. Types may widen (integers, float to double,
    decimals that keep every digit); nothing else is converted. Nulls in required columns show only when rows are written.

    Args:
        have: the DataFrame's schema.
        wanted: the table's schema as Spark sees it.
        table: its name, for messages.
        partition_sources: columns that a partition is made from. They must be given: rows without them would all fall
            into the partition of null.

    Returns:
        SQL expressions for `selectExpr`; None where the DataFrame fits as it is.

    Raises:
        InvalidInput: two columns stand for one of the table's.
        FileRefused: unknown_column, missing_column or wrong_type, naming the column.
    """
    found = _match(have.names, wanted.names, table, "")
    for name in partition_sources:
        if name in wanted.names and wanted.names.index(name) not in found:
            raise FileRefused(
                "missing_column", f"column {name!r} of {table} is missing, and partitions are made from it"
            )
    if have.names == wanted.names and _ddl(have) == _ddl(wanted):
        return None
    return [f"{text} AS {quoted(field.name)}" for text, field in _fitted_fields("", have, wanted, found, table, "")]


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """A DataFrame's schema as Arrow has it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timestamp_utc=True)


def _match(have: list[str], wanted: list[str], table: str, parent: str) -> dict[int, int]:
    """Places in `wanted` -> places in `have`. The names of a table differ by more than case.

    Raises:
        FileRefused: unknown_column, for a name that the table lacks.
        InvalidInput: two names stand for one column.
    """
    exact = {name: place for place, name in enumerate(wanted)}
    folded = {name.lower(): place for place, name in enumerate(wanted)}
    places: dict[int, int] = {}
    for place, name in enumerate(have):
        target = exact.get(name, folded.get(name.lower()))
        if target is None:
            raise FileRefused(
                "unknown_column",
                f"column {parent + name!r} is not in {table}, which has {', '.join(wanted[:20])}"
                f"{', ...' if len(wanted) > 20 else ''}; drop it, or add it to the table first",
            )
        if target in places:
            twin = have[places[target]]
            raise InvalidInput(
                f"columns {parent + twin!r} and {parent + name!r} both stand for {wanted[target]!r} of {table}; "
                "rename or drop one of them"
            )
        places[target] = place
    return places


def _fitted_fields(
    source: str, have: StructType, wanted: StructType, found: dict[int, int], table: str, parent: str
) -> list[tuple[str, StructField]]:
    """Each wanted field with the SQL that makes it; `source` is the struct's own SQL, empty for the DataFrame."""
    fitted = []
    for target, field in enumerate(wanted.fields):
        path = parent + field.name
        if target in found:
            given = have.fields[found[target]]
            text = f"{source}.{quoted(given.name)}" if source else quoted(given.name)
            fitted.append((_fit(text, given.dataType, field.dataType, table, path), field))
        else:
            fitted.append((_missing(field, table, path), field))
    return fitted


def _missing(field: StructField, table: str, path: str) -> str:
    # A write default of Iceberg's, as SQL: the key is Spark's own for a column's default.
    default = field.metadata.get("CURRENT_DEFAULT")
    if default is None and not field.nullable:
        raise FileRefused("missing_column", f"column {path!r} of {table} is required, and the DataFrame has none")
    return f"CAST({default or 'NULL'} AS {_ddl(field.dataType)})"


def _fit(text: str, have: DataType, wanted: DataType, table: str, path: str) -> str:
    """The SQL that gives a value the wanted type; itself where nothing must change.

    Raises:
        FileRefused: wrong_type, unknown_column or missing_column (of a struct's field).
    """
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if _ddl(have) == _ddl(wanted):
        return text
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        found = _match(have.names, wanted.names, f"{path} of {table}", f"{path}.")
        fields = _fitted_fields(text, have, wanted, found, table, f"{path}.")
        inner = ", ".join(f"{part} AS {quoted(field.name)}" for part, field in fields)
        return f"IF({text} IS NULL, NULL, STRUCT({inner}))"
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        element = f"e{path.count('.')}"  # a name of its own at each depth
        inner = _fit(element, have.elementType, wanted.elementType, table, f"{path}.element")
        return f"TRANSFORM({text}, {element} -> {inner})"
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        return _fit_map(text, have, wanted, table, path)
    if isinstance(have, NullType) or _widens(have, wanted):
        return f"CAST({text} AS {_ddl(wanted)})"
    raise FileRefused(
        "wrong_type",
        f"column {path!r} is {have.simpleString()}, not all of whose values fit into {table}'s {wanted.simpleString()}; "
        f"cast it where that is meant: .cast({wanted.simpleString()!r})",
    )


def fits(have: DataType, wanted: DataType, table: str, path: str) -> bool:
    """Whether SQL makes the one type of the other without a loss. Raises FileRefused: unknown_column, missing_column."""
    try:
        _fit("x", have, wanted, table, path)
    except FileRefused as error:
        if error.reason != "wrong_type":
            raise
        return False
    return True


def _fit_map(text: str, have: MapType, wanted: MapType, table: str, path: str) -> str:
    depth = path.count(".")
    key, value = f"k{depth}", f"v{depth}"
    fitted_key = _fit(key, have.keyType, wanted.keyType, table, f"{path}.key")
    fitted_value = _fit(value, have.valueType, wanted.valueType, table, f"{path}.value")
    if fitted_key != key:
        text = f"TRANSFORM_KEYS({text}, ({key}, {value}) -> {fitted_key})"
    if fitted_value != value:
        text = f"TRANSFORM_VALUES({text}, ({key}, {value}) -> {fitted_value})"
    return text


def _widens(have: DataType, wanted: DataType) -> bool:
    """Whether every value of one type is a value of the other, so that a cast can neither fail nor change it."""
    from pyspark.sql.types import CharType, StringType, VarcharType

    from lakeward.arrow.casts import widens

    if isinstance(have, CharType | VarcharType):
        return isinstance(wanted, StringType)
    source, target = _number(have), _number(wanted)
    return source is not None and target is not None and widens(source, target)


def _number(kind: DataType) -> pa.DataType | None:
    """Arrow's type of a Spark type of numbers; None for any other."""
    import pyarrow as pa
    from pyspark.sql import types as t

    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    plain: dict[type[t.DataType], pa.DataType] = {
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
    }
    return plain.get(type(kind))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ddl(kind: DataType) -> str:
    """A type as SQL writes it, without nullability: equal where values can pass as they are.

    `simpleString` does not quote names, and cuts long structs short.
    """
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return "STRUCT<" + ", ".join(f"{quoted(field.name)}: {_ddl(field.dataType)}" for field in kind.fields) + ">"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()
