"""Many files and partitions judged at once, against the judge of one: whatever that keeps is kept, and what it can tell is told."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.arrow import statistics
from lakeward.arrow.filters import bind_filter, parse_filter
from lakeward.arrow.keys import Column, column, key_range, value_column
from lakeward.arrow.pruning import Pruner
from lakeward.iceberg import values
from lakeward.iceberg.partitions import partition_value
from lakeward.tables.records.files import FileStatistics, partition_key
from tests.unit.arrow.targets import schema_of

DECIMAL = "decimal(38, 2)"
LARGEST = Decimal("9" * 36 + ".99")
# Of each type: values from the least to the largest, what stands for them in a filter, and transforms.
VALUES: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), -1, 0, 7, 2**31 - 1],
    "long": [-(2**63), -1, 0, 7, 2**63 - 1],
    "float": [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf],
    "double": [-math.inf, -1e300, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf],
    DECIMAL: [LARGEST.copy_negate(), Decimal("-0.01"), Decimal("0.00"), Decimal("0.01"), Decimal(2**63), LARGEST],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)],
    "time": [dt.time(0), dt.time(12, 30, 0, 1), dt.time(23, 59, 59, 999_999)],
    "timestamp": [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    "timestamptz": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC)],
    "string": ["", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "b", "z" * 9, "é", "\ud7ff", "\U0010ffff" * 3],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=2**127 - 1), uuid.UUID(int=2**127), uuid.UUID(int=2**128 - 1)],
    "binary": [b"", b"\0", b"\0" * 9, b"a", b"\x7f" * 9, b"\xff" * 7, b"\xff" * 8, b"\xff" * 9],
    "fixed[4]": [b"\0\0\0\0", b"abcd", b"\xff\xff\xff\xff"],
}
TRANSFORMS: dict[str, list[str]] = {
    **{type_: ["identity"] for type_ in ("boolean", "float", "double")},
    "int": ["identity", "bucket[3]", "truncate[10]"],
    "long": ["identity", "bucket[3]", "truncate[10]"],
    DECIMAL: ["bucket[3]", "identity"],
    "date": ["identity", "year", "month", "day", "bucket[3]"],
    "time": ["identity", "bucket[3]"],
    "timestamp": ["identity", "year", "month", "day", "hour", "bucket[3]"],
    "timestamptz": ["identity", "year", "month", "day", "hour", "bucket[3]"],
    "string": ["identity", "truncate[1]", "truncate[8]", "bucket[3]"],
    "uuid": ["bucket[3]"],
    "binary": ["identity", "truncate[1]", "bucket[3]"],
    "fixed[4]": ["bucket[3]"],
}


def raw(type_: str, value: Any) -> Any:
    return values.from_python(type_, value)


def literal(type_: str, value: Any) -> str | None:
    """A value in a filter's text; None where it has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return f"'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat().replace('+00:00', 'Z')}'"
    if isinstance(value, (str, uuid.UUID, dt.date, dt.time)):
        return f"'{value}'"
    return str(value).lower() if isinstance(value, bool) else f"{value:f}" if isinstance(value, Decimal) else str(value)


@st.composite
def predicates(draw: Any, name: str, type_: str) -> str:
    literals = [text for text in (literal(type_, value) for value in VALUES[type_]) if text is not None]
    negation = draw(st.sampled_from(["", "not "]))
    kind = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "nan", "like"]))
    if kind == "in":
        some = draw(st.lists(st.sampled_from(literals), min_size=1, max_size=4, unique=True))
        return f"{name} {negation}in ({', '.join(some)})"
    if kind == "null":
        return f"{name} is {negation}null"
    if kind == "nan" and type_ in ("float", "double"):
        return f"{name} is {negation}nan"
    if kind == "like" and type_ == "string":
        start = draw(
            st.sampled_from([text[:n] for text in VALUES["string"] for n in (1, 8, 9) if text and "\0" not in text])
        )
        return f"{name} {negation}like '{start}%'"
    operators = ["=", "!="] if type_ == "boolean" else ["=", "!=", "<", "<=", ">", ">="]
    return f"{negation}{name} {draw(st.sampled_from(operators))} {draw(st.sampled_from(literals))}"


@st.composite
def filters(draw: Any, types: dict[str, str]) -> str:
    text: str = draw(st.sampled_from(sorted(types)).flatmap(lambda name: predicates(name, types[name])))
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(types)))
        other = draw(predicates(name, types[name]))
        text = draw(st.sampled_from([f"{text} and {other}", f"({text}) or {other}", f"not ({text} and {other})"]))
    return text


@st.composite
def column_statistics(draw: Any, type_: str) -> dict[str, Any]:
    """What a file may say of a column, true or not: bounds in any order, of earlier widths, missing, NaN."""
    ends = [values.to_binary(type_, raw(type_, value)) for value in VALUES[type_]]
    if type_ in ("float", "double"):
        ends.append(values.to_binary(type_, math.nan))
    if type_ in ("long", "double"):
        narrow = {"long": "int", "double": "float"}[type_]
        ends += [values.to_binary(narrow, raw(narrow, value)) for value in VALUES[narrow]]
    bound = st.none() | st.sampled_from(ends)
    count = st.none() | st.sampled_from([0, 1, 2])
    return {
        "lower": draw(bound),
        "upper": draw(bound),
        "value_counts": draw(count),
        "null_counts": draw(count),
        "nan_counts": draw(count),
    }


def statistics_of(columns: dict[int, dict[str, Any]]) -> FileStatistics:
    sides = ("lower", "upper", "value_counts", "null_counts", "nan_counts")
    return FileStatistics(
        **{side: {i: found[side] for i, found in columns.items() if found[side] is not None} for side in sides}
    )


def pruner_of(text: str, schema: Any, *specs: Any) -> Pruner:
    parsed = parse_filter(text)
    assert parsed is not None
    return Pruner(bind_filter(parsed, schema), {spec["spec-id"]: spec for spec in specs})


@st.composite
def cases(draw: Any) -> tuple[Any, str, list[FileStatistics]]:
    types = {"a": draw(st.sampled_from(sorted(VALUES))), "b": draw(st.sampled_from(sorted(VALUES)))}
    file = st.fixed_dictionaries(
        {}, optional={i: column_statistics(type_) for i, type_ in enumerate(types.values(), start=1)}
    )
    files = draw(st.lists(file, min_size=1, max_size=6))
    return schema_of(types), draw(filters(types)), [statistics_of(columns) for columns in files]


@settings(max_examples=300, deadline=None)
@given(cases())
def test_no_file_is_lost_that_the_judge_of_one_keeps(case: tuple[Any, str, list[FileStatistics]]) -> None:
    schema, text, files = case
    pruner = pruner_of(text, schema)
    types = {field["id"]: field["type"] for field in schema["fields"]}
    made = {i: column(type_, files, i) for i, type_ in types.items()}
    paged = {i: Column.decode(found.encode()) for i, found in made.items() if found is not None}
    kept = [pruner.may_match(file, 1, {}, 0) for file in files]
    for answers in (pruner.files_may_match(files), pruner.columns_may_match(paged, len(files))):
        assert all(answer or not keep for answer, keep in zip(answers, kept, strict=True)), (text, kept, answers)


@st.composite
def partitioned(draw: Any) -> tuple[Any, list[Any], str, list[tuple[int, dict[int, Any]]]]:
    """Partitions of a spec and of the one that came after it, each of one column or two."""
    types = {"a": draw(st.sampled_from(sorted(VALUES))), "b": draw(st.sampled_from(sorted(VALUES)))}
    specs, partitions = [], []
    for spec_id in (0, 1):
        fields = [
            {"source-id": i, "field-id": 1000 + 10 * spec_id + i, "transform": draw(st.sampled_from(TRANSFORMS[type_])), "name": f"{name}_part"}
            for i, (name, type_) in enumerate(types.items(), start=1)
            if draw(st.booleans())
        ]  # fmt: skip
        specs.append({"spec-id": spec_id, "fields": fields})
        for _ in range(draw(st.integers(1, 4))):
            values_of = {
                field["field-id"]: draw(st.none() | st.sampled_from(_partition_values(types, field)))
                for field in fields
            }
            partitions.append((spec_id, values_of))
    return schema_of(types), specs, draw(filters(types)), partitions


def _partition_values(types: dict[str, str], field: Any) -> list[Any]:
    type_ = list(types.values())[field["source-id"] - 1]
    given_values = [*VALUES[type_], math.nan] if type_ in ("float", "double") else VALUES[type_]
    return [partition_value(field["transform"], type_, value) for value in given_values]


@settings(max_examples=300, deadline=None)
@given(partitioned(), st.booleans())
def test_no_partition_is_lost_that_the_judge_of_one_keeps(case: Any, is_dropped: bool) -> None:
    schema, specs, text, partitions = case
    if is_dropped and " b " not in f" {text} ".replace("(", " "):
        schema = {**schema, "fields": schema["fields"][:1]}
    pruner = pruner_of(text, schema, *specs)
    for spec_id in (0, 1):
        mine = [partition for number, partition in partitions if number == spec_id]
        answers = pruner.partitions_may_match(spec_id, [partition_key(each) for each in mine])
        kept = [pruner.may_match(FileStatistics(), 1, each, spec_id) for each in mine]
        assert all(answer or not keep for answer, keep in zip(answers, kept, strict=True)), (text, mine, kept, answers)


@pytest.mark.parametrize(
    "text, kept",
    [
        ("a = 15", [1]),
        ("a < 10", [0, 1]),
        ("a <= 10", [0, 1]),
        ("a > 29", [2]),
        ("a in (5, 25)", [0, 2]),
        ("a in (-1, 30)", []),
        ("a = 15 or a = 25", [1, 2]),
        ("a >= 10 and s = 's1'", [1]),
        ("s like 's2%'", [2]),
        ("a is null", [2]),
        ("a is not null", [0, 1, 2]),
        ("d is nan", [1]),
        ("d > 1.5", [2, 3]),
        ("not a >= 10", [0, 1]),
    ],
)
def test_what_bounds_can_tell_is_told(text: str, kept: list[int]) -> None:
    schema = schema_of({"a": "long", "s": "string", "d": "double"})
    files = [
        statistics_of(
            {
                1: _known("long", 10 * i, 10 * i + 9, nulls=1 if i == 2 else 0),
                2: _known("string", f"s{i}", f"s{i}"),
                3: _known("double", float(i), float(i), nans=1 if i == 1 else 0),
            }
        )
        for i in range(3)
    ]
    empty = {"lower": None, "upper": None, "value_counts": 2, "null_counts": 2, "nan_counts": 0}
    files.append(statistics_of({1: empty, 2: empty, 3: {**_known("double", 3.0, 3.0), "nan_counts": 0}}))
    answers = pruner_of(text, schema).files_may_match(files)
    expected = kept if "a is null" not in text else [*kept, 3]
    assert [i for i, answer in enumerate(answers) if answer] == expected


def _known(type_: str, low: Any, high: Any, nulls: int = 0, nans: int = 0) -> dict[str, Any]:
    ends = (values.to_binary(type_, raw(type_, end)) for end in (low, high))
    return {
        **dict(zip(("lower", "upper"), ends, strict=True)),
        "value_counts": 2,
        "null_counts": nulls,
        "nan_counts": nans,
    }


@pytest.mark.parametrize(
    "type_, transform, of, text, kept",
    [
        ("int", "identity", [1, 2, 3, None], "x = 2", 1),
        ("int", "identity", [1, 2, 3, None], "x is null", 1),
        ("int", "truncate[10]", [5, 15, 25, None], "x >= 20", 1),
        ("string", "truncate[2]", ["aa1", "bb1", "cc1"], "x in ('aa9', 'cc')", 2),
        ("string", "truncate[2]", ["aa1", "bb1", "cc1"], "x like 'bb%'", 1),
        ("long", "bucket[64]", list(range(64)), "x = 5", 1),
        ("date", "month", [dt.date(2024, month, 1) for month in (1, 2, 3)], "x >= '2024-03-01'", 1),
        ("timestamp", "hour", [dt.datetime(2024, 1, 1, hour) for hour in (1, 2, 3)], "x < '2024-01-01T02:00:00'", 1),
        ("timestamptz", "day", [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 2, 3)], "x = '2024-01-02T05:00:00Z'", 1),
        ("decimal(9, 2)", "identity", [Decimal("1.10"), Decimal("2.20")], "x = 1.10", 1),
        ("boolean", "identity", [True, False, None], "x = true", 1),
    ],
)  # fmt: skip
def test_what_partitions_can_tell_is_told(type_: str, transform: str, of: list[Any], text: str, kept: int) -> None:
    spec = {"spec-id": 4, "fields": [{"source-id": 1, "field-id": 1000, "transform": transform, "name": "part"}]}
    each = {None if value is None else partition_value(transform, type_, value) for value in of}
    keys = [partition_key({1000: value}) for value in each]
    assert sum(pruner_of(text, schema_of({"x": type_}), spec).partitions_may_match(4, keys)) == kept


@pytest.mark.parametrize("type_", [type_ for type_ in VALUES if type_ not in ("float", "double")])
def test_keys_are_in_the_order_of_their_values(type_: str) -> None:
    keys = [key_range(type_, statistics.ordered(type_, raw(type_, value))) for value in VALUES[type_]]
    assert keys == sorted(keys)
    assert len(set(keys)) > 1


def test_negative_zero_is_zero_and_nan_has_no_place() -> None:
    assert key_range("double", -0.0) == key_range("double", 0.0) < key_range("double", 5e-324)
    with pytest.raises(ValueError):
        key_range("double", math.nan)
    column_of_nan = value_column("double", [math.nan])
    assert column_of_nan.lower[0] < key_range("double", -math.inf)[0]
    assert column_of_nan.upper[0] > key_range("double", math.inf)[1]
