"""Match a Spark DataFrame to a table's columns, by name, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakeward.errors import FileRefused, InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, MapType, StructField, StructType


def match_columns(
    dataframe: DataFrame, wanted: StructType, table: str, partition_sources: Iterable[str] = ()
) -> DataFrame:
    """The DataFrame with exactly the table's columns, in its order and with its types. Nothing is computed yet.

    Columns, and the fields of structs at any depth, are found by name: as written, else without regard to case. A column
    that is missing becomes null where the table allows it. Types may widen (integers, float to double, decimals that keep
    every digit); nothing else is converted. Nulls in required columns show only when the rows are written.

    Args:
        wanted: the table's schema as Spark sees it.
        table: its name, for messages.
        partition_sources: columns that a partition is made from. They must be given: rows without them would all fall
            into the partition of null.

    Raises:
        InvalidInput: two columns stand for one of the table's.
        FileRefused: unknown_column, missing_column or wrong_type, naming the column.
    """
    have = dataframe.schema
    found = _match(have.names, wanted.names, table, "")
    for name in partition_sources:
        if name in wanted.names and wanted.names.index(name) not in found:
            raise FileRefused(
                "missing_column", f"column {name!r} of {table} is missing, and partitions are made from it"
            )
    # By place, not by name: names may hold dots and backticks, and differ in case alone.
    placed = dataframe.toDF(*(f"c{place}" for place in range(len(have.names))))
    columns = []
    for target, field in enumerate(wanted.fields):
        if target in found:
            place = found[target]
            column = _fit(placed[f"c{place}"], have.fields[place].dataType, field.dataType, table, field.name)
        else:
            column = _missing(field, table, field.name)
        columns.append(column.alias(field.name))
    return placed.select(*columns)


def _match(have: list[str], wanted: list[str], table: str, parent: str) -> dict[int, int]:
    """Places in `wanted` -> places in `have`.

    Raises:
        FileRefused: unknown_column, for a name that the table lacks.
        InvalidInput: two names stand for one column.
    """
    exact = {name: place for place, name in enumerate(wanted)}
    folded: dict[str, list[int]] = {}
    for place, name in enumerate(wanted):
        folded.setdefault(name.lower(), []).append(place)
    places: dict[int, int] = {}
    for place, name in enumerate(have):
        candidates = [exact[name]] if name in exact else folded.get(name.lower(), [])
        if len(candidates) != 1:
            raise FileRefused(
                "unknown_column",
                f"column {parent + name!r} is not in {table}, which has {', '.join(wanted[:20])}"
                f"{', ...' if len(wanted) > 20 else ''}; drop it, or add it to the table first",
            )
        if candidates[0] in places:
            twin = have[places[candidates[0]]]
            raise InvalidInput(
                f"columns {parent + twin!r} and {parent + name!r} both stand for {wanted[candidates[0]]!r} of {table}; "
                "rename or drop one of them"
            )
        places[candidates[0]] = place
    return places


def _missing(field: StructField, table: str, path: str) -> Column:
    from pyspark.sql import functions as f

    # A write default of Iceberg's, as SQL: the key is Spark's own for a column's default.
    if default := field.metadata.get("CURRENT_DEFAULT"):
        return f.expr(default).cast(field.dataType)
    if not field.nullable:
        raise FileRefused("missing_column", f"column {path!r} of {table} is required, and the DataFrame has none")
    return f.lit(None).cast(field.dataType)


def _fit(column: Column, have: DataType, wanted: DataType, table: str, path: str) -> Column:
    """The expression that gives `column` the wanted type; itself where nothing must change.

    Raises:
        FileRefused: wrong_type, unknown_column or missing_column (of a struct's field).
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    if _plain(have) == _plain(wanted):
        return column
    if isinstance(have, NullType):
        return column.cast(wanted)
    if isinstance(have, StructType) and isinstance(wanted, StructType):
        return _fit_struct(column, have, wanted, table, path)
    if isinstance(have, ArrayType) and isinstance(wanted, ArrayType):
        inner, outer = have.elementType, wanted.elementType
        _fit(f.lit(None), inner, outer, table, f"{path}.element")  # refuse now: a lambda's errors come wrapped
        return f.transform(column, lambda element: _fit(element, inner, outer, table, f"{path}.element"))
    if isinstance(have, MapType) and isinstance(wanted, MapType):
        return _fit_map(column, have, wanted, table, path)
    if _widens(have, wanted):
        return column.cast(wanted)
    raise FileRefused(
        "wrong_type",
        f"column {path!r} is {have.simpleString()}, not all of whose values fit into {table}'s {wanted.simpleString()}; "
        f"cast it where that is meant: .cast({wanted.simpleString()!r})",
    )


def _fit_struct(column: Column, have: StructType, wanted: StructType, table: str, path: str) -> Column:
    from pyspark.sql import functions as f

    found = _match(have.names, wanted.names, f"{path} of {table}", f"{path}.")
    fields = []
    for target, field in enumerate(wanted.fields):
        name = f"{path}.{field.name}"
        if target in found:
            source = have.fields[found[target]]
            value = _fit(column.getField(source.name), source.dataType, field.dataType, table, name)
        else:
            value = _missing(field, table, name)
        fields.append(value.alias(field.name))
    return f.when(column.isNull(), None).otherwise(f.struct(*fields))


def _fit_map(column: Column, have: MapType, wanted: MapType, table: str, path: str) -> Column:
    from pyspark.sql import functions as f

    keys, values = (have.keyType, wanted.keyType), (have.valueType, wanted.valueType)
    _fit(f.lit(None), *keys, table, f"{path}.key")
    _fit(f.lit(None), *values, table, f"{path}.value")
    if _plain(keys[0]) != _plain(keys[1]):
        column = f.transform_keys(column, lambda key, _: _fit(key, *keys, table, f"{path}.key"))
    if _plain(values[0]) != _plain(values[1]):
        column = f.transform_values(column, lambda _, value: _fit(value, *values, table, f"{path}.value"))
    return column


def _widens(have: DataType, wanted: DataType) -> bool:
    """Whether every value of one type is a value of the other, so that a cast can neither fail nor change it."""
    from pyspark.sql import types as t

    digits: dict[type[t.DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
    if type(have) in digits:
        if type(wanted) in digits:
            return digits[type(have)] < digits[type(wanted)]
        return isinstance(wanted, t.DecimalType) and wanted.precision - wanted.scale >= digits[type(have)]
    if isinstance(have, t.DecimalType) and isinstance(wanted, t.DecimalType):
        return wanted.scale >= have.scale and wanted.precision - wanted.scale >= have.precision - have.scale
    if isinstance(have, t.FloatType) and isinstance(wanted, t.DoubleType):
        return True
    return isinstance(have, t.CharType | t.VarcharType) and isinstance(wanted, t.StringType)


def _plain(kind: DataType) -> str:
    """Like `simpleString`, which cuts long structs short and does not quote their names."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return "struct<" + ",".join(f"{field.name!r}:{_plain(field.dataType)}" for field in kind.fields) + ">"
    if isinstance(kind, ArrayType):
        return f"array<{_plain(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_plain(kind.keyType)},{_plain(kind.valueType)}>"
    return kind.simpleString()
