"""What a DataFrame may look like to be appended to a table. No Spark runs here: schemas go in, SQL comes out."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakeward.errors import FileRefused, InvalidInput
from lakeward.spark.columns import matched_columns


def struct(*fields: tuple[str, DataType] | StructField) -> StructType:
    return StructType([field if isinstance(field, StructField) else StructField(*field) for field in fields])


TABLE = struct(StructField("id", LongType(), nullable=False), ("name", StringType()), ("amount", DecimalType(10, 2)))


def match(have: StructType, wanted: StructType = TABLE) -> list[str] | None:
    return matched_columns(have, wanted, "sales.orders")


def test_a_dataframe_that_fits_passes_as_it_is() -> None:
    assert match(TABLE) is None


def test_nullability_does_not_count_as_a_difference() -> None:
    nullable = struct(("id", LongType()), ("name", StringType()), ("amount", DecimalType(10, 2)))
    assert match(nullable) is None


def test_columns_in_another_order_are_put_into_the_tables() -> None:
    assert match(struct(("amount", DecimalType(10, 2)), ("id", LongType()), ("name", StringType()))) == [
        "`id` AS `id`",
        "`name` AS `name`",
        "`amount` AS `amount`",
    ]


def test_a_name_is_found_without_regard_to_case_and_gets_the_tables_spelling() -> None:
    selected = match(struct(("ID", LongType()), ("Name", StringType()), ("amount", DecimalType(10, 2))))
    assert selected == ["`ID` AS `id`", "`Name` AS `name`", "`amount` AS `amount`"]


def test_a_missing_optional_column_becomes_null_of_its_type() -> None:
    assert match(struct(("id", LongType()), ("name", StringType()))) == [
        "`id` AS `id`",
        "`name` AS `name`",
        "CAST(NULL AS decimal(10,2)) AS `amount`",
    ]


def test_a_missing_column_with_a_default_becomes_the_default() -> None:
    wanted = struct(("id", LongType()), StructField("n", IntegerType(), False, {"CURRENT_DEFAULT": "7"}))
    assert match(struct(("id", LongType())), wanted) == ["`id` AS `id`", "CAST(7 AS int) AS `n`"]


def test_a_missing_required_column_is_refused_by_name() -> None:
    with pytest.raises(FileRefused, match=r"'id' of sales\.orders is required") as refused:
        match(struct(("name", StringType())))
    assert refused.value.reason == "missing_column"


def test_a_missing_partition_column_is_refused_though_it_may_be_null() -> None:
    with pytest.raises(FileRefused, match=r"'name'.*partitions are made from it") as refused:
        matched_columns(struct(("id", LongType())), TABLE, "sales.orders", ["name"])
    assert refused.value.reason == "missing_column"


def test_an_unknown_column_is_refused_and_the_tables_columns_are_named() -> None:
    with pytest.raises(FileRefused, match=r"'colour' is not in sales\.orders, which has id, name, amount") as refused:
        match(struct(("id", LongType()), ("colour", StringType())))
    assert refused.value.reason == "unknown_column"


@pytest.mark.parametrize("twin", ["id", "ID"])
def test_two_columns_for_one_of_the_tables_are_refused(twin: str) -> None:
    with pytest.raises(InvalidInput, match=f"'id' and '{twin}' both stand for 'id'"):
        match(struct(("id", LongType()), (twin, LongType())))


@pytest.mark.parametrize(
    ("have", "wanted"),
    [
        (ByteType(), IntegerType()),
        (ShortType(), LongType()),
        (IntegerType(), LongType()),
        (IntegerType(), DecimalType(10, 0)),
        (LongType(), DecimalType(21, 2)),
        (DecimalType(5, 2), DecimalType(10, 2)),
        (DecimalType(5, 2), DecimalType(7, 4)),
        (FloatType(), DoubleType()),
        (NullType(), DateType()),
    ],
)
def test_a_type_that_only_widens_is_cast(have: DataType, wanted: DataType) -> None:
    assert match(struct(("a", have)), struct(("a", wanted))) == [f"CAST(`a` AS {wanted.simpleString()}) AS `a`"]


@pytest.mark.parametrize(
    ("have", "wanted"),
    [
        (LongType(), IntegerType()),
        (LongType(), DoubleType()),
        (IntegerType(), FloatType()),
        (IntegerType(), DecimalType(10, 2)),
        (DoubleType(), FloatType()),
        (DecimalType(10, 2), DecimalType(9, 2)),
        (DecimalType(10, 2), DecimalType(10, 3)),
        (DecimalType(10, 0), LongType()),
        (StringType(), LongType()),
        (LongType(), StringType()),
        (TimestampType(), TimestampNTZType()),
        (TimestampNTZType(), TimestampType()),
        (DateType(), TimestampNTZType()),
        (StringType(), struct(("a", StringType()))),
        (ArrayType(StringType()), StringType()),
    ],
)
def test_a_type_whose_values_may_not_fit_is_refused_by_name(have: DataType, wanted: DataType) -> None:
    with pytest.raises(FileRefused, match="column 'a' is ") as refused:
        match(struct(("a", have)), struct(("a", wanted)))
    assert refused.value.reason == "wrong_type"


def test_fields_of_structs_are_matched_by_name_at_any_depth() -> None:
    wanted = struct(("m", MapType(StringType(), ArrayType(struct(("x", LongType()), ("y", StringType()))))))
    have = struct(("m", MapType(StringType(), ArrayType(struct(("Y", StringType()), ("x", IntegerType()))))))
    assert match(have, wanted) == [
        "TRANSFORM_VALUES(`m`, (k0, v0) -> TRANSFORM(v0, e1 -> "
        "IF(e1 IS NULL, NULL, STRUCT(CAST(e1.`x` AS bigint) AS `x`, e1.`Y` AS `y`)))) AS `m`"
    ]


def test_a_missing_field_of_a_struct_becomes_null_and_an_unknown_one_is_refused_by_its_path() -> None:
    wanted = struct(("s", struct(("x", LongType()), ("y", StringType()))))
    assert match(struct(("s", struct(("x", LongType())))), wanted) == [
        "IF(`s` IS NULL, NULL, STRUCT(`s`.`x` AS `x`, CAST(NULL AS string) AS `y`)) AS `s`"
    ]
    with pytest.raises(FileRefused, match=r"'s\.z' is not in s of sales\.orders"):
        match(struct(("s", struct(("z", LongType())))), wanted)


def test_names_with_dots_spaces_and_backticks_are_quoted() -> None:
    wanted = struct(("a.b", LongType()), ("c`d e", struct(("f.g", LongType()))))
    have = struct(("c`d e", struct(("f.g", LongType()))), ("a.b", LongType()))
    assert match(have, wanted) == ["`a.b` AS `a.b`", "`c``d e` AS `c``d e`"]
    only = match(struct(("a.b", LongType())), wanted)
    assert only is not None
    assert only[1] == "CAST(NULL AS STRUCT<`f.g`: bigint>) AS `c``d e`"
