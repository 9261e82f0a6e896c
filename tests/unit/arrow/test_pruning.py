"""Pruning against a plain filter over the rows: a file or row group that is left out holds no row that the filter keeps."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeward.arrow import file_writer
from lakeward.arrow.coerce import coerce
from lakeward.arrow.filters import Filter, bind_filter, parse_filter
from lakeward.arrow.pruning import Pruner
from lakeward.arrow.target import TableTarget
from lakeward.arrow.write import write_arrow
from lakeward.iceberg import schemas
from lakeward.storage.parquet_footers import decode_footer
from lakeward.tables.records.files import FileStatistics, PartitionValues
from lakeward.tables.records.tables import Document
from tests.unit.arrow.targets import schema_of, spec_of, target_for


def may_match(
    file: FileStatistics,
    row_count: int,
    partition: PartitionValues,
    spec: Document,
    schema: Document,
    filter: Filter,
) -> bool:
    """Whether a file may hold rows that the filter keeps."""
    return Pruner(bind_filter(filter, schema), {spec["spec-id"]: spec}).may_match(
        file, row_count, partition, spec["spec-id"]
    )


def row_groups(footer: pq.FileMetaData, schema: Document, filter: Filter) -> list[int]:
    """The row groups of a file that may hold rows that the filter keeps, by the file's footer."""
    return Pruner(bind_filter(filter, schema), {}).row_groups(footer)


def parsed(source: Any) -> Filter:
    found = parse_filter(source)
    assert found is not None
    return found


def kept_files(target: TableTarget, data: Any, source: Any) -> tuple[int, int]:
    """How many files there are, and how many are kept."""
    files = write_arrow(target, data)
    keep = [
        may_match(f.statistics, f.row_count, f.partition, target.spec, target.schema, parsed(source)) for f in files
    ]
    return len(files), sum(keep)


@pytest.mark.parametrize(
    "source, kept",
    [
        ("x = 5", 1),
        ("x = 50", 0),
        ("x > 9", 0),
        ("x >= 9", 1),
        ("x < 0", 0),
        ("x in (50, 60)", 0),
        ("x is null", 0),
        ("y is null", 1),
        ("y is not null", 0),
        ("y = 1", 0),
        ("not x <= 9", 0),
        ("x = 50 or x = 5", 1),
        ("x = 50 and x = 5", 0),
        ("s like 'b%'", 0),
        ("s = 'text 3'", 1),
        ("d > 100", 0),
        ("n.x = 77", 0),
        (pc.field("x") == 50, 0),
        (pc.field("x") == 5, 1),
        (pc.field("y") == 1, 0),
        ((pc.field("x") > 100) | (pc.field("s") == "b"), 0),
        (~(pc.field("d") <= 1000.0), 1),  # NaN is not less
    ],
)
def test_statistics_rule_out_what_they_can(tmp_path: Path, source: Any, kept: int) -> None:
    schema = {"x": "long", "y": "int", "s": "string", "d": "double", "n": "struct<x: int>"}
    data = [
        {"x": i, "y": None, "s": f"text {i}", "d": math.nan if i == 3 else float(i), "n": {"x": i}} for i in range(10)
    ]
    assert kept_files(target_for(tmp_path, schema), data, source) == (1, kept)


@pytest.mark.parametrize(
    "type_, transform, values, source, kept",
    [
        ("int", "identity", [1, 2, 3, None], "x = 2", 1),
        ("int", "identity", [1, 2, 3, None], "x is null", 1),
        ("int", "identity", [1, 2, 3, None], "x != 2", 3),
        ("string", "truncate[2]", ["aa1", "aa2", "bb1", None], "x = 'aa9'", 1),
        ("string", "truncate[2]", ["aa1", "aa2", "bb1"], "x like 'bb%'", 1),
        ("date", "month", [dt.date(2024, m, 1) for m in (1, 2, 3)], "x >= '2024-03-01'", 1),
        ("timestamp", "day", [dt.datetime(2024, 1, d) for d in (1, 2, 3)], "x < '2024-01-01T12:00:00'", 1),
        ("decimal(9, 2)", "identity", [Decimal("1.10"), Decimal("2.20")], "x = 1.10", 1),
        ("double", "identity", [1.0, math.nan, math.inf], "x is nan", 1),
    ],
)
def test_partition_values_rule_out_files_without_any_statistics(
    tmp_path: Path, type_: str, transform: str, values: list[Any], source: str, kept: int
) -> None:
    target = target_for(tmp_path, {"x": type_}, ("x", transform))
    files = write_arrow(target, {"x": values})
    pruner = Pruner(bind_filter(parsed(source), target.schema), {1: target.spec})
    assert sum(pruner.may_match(FileStatistics(), f.row_count, f.partition, 1) for f in files) == kept


def test_a_bucket_rules_out_all_others(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"x": "long"}, ("x", "bucket[8]"))
    files = write_arrow(target, {"x": list(range(100))})
    pruner = Pruner(bind_filter(parsed("x = 5"), target.schema), {1: target.spec})
    assert (len(files), sum(pruner.may_match(FileStatistics(), 1, f.partition, 1) for f in files)) == (8, 1)


def test_row_groups_are_ruled_out_by_the_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 10)
    monkeypatch.setattr(file_writer, "SLICE_ROWS", 10)
    target = target_for(tmp_path, {"x": "long"})
    (file,) = write_arrow(target, {"x": list(range(50))})
    footer = decode_footer(file.footer or b"")
    assert row_groups(footer, target.schema, parsed("x = 25")) == [2]
    assert row_groups(footer, target.schema, parsed("x > 35")) == [3, 4]
    assert row_groups(footer, target.schema, parsed(pc.field("x") > 35)) == [3, 4]


def test_a_dropped_partition_column_and_an_added_column_rule_out_nothing(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"x": "long", "p": "int"}, ("p", "identity"))
    (file,) = write_arrow(target, {"x": [1], "p": [1]})
    schema = schema_of({"x": "long", "p": "int", "added": "long"})
    del schema["fields"][1]
    assert may_match(file.statistics, 1, file.partition, target.spec, schema, parsed("x = 1 and added is null"))
    assert not may_match(file.statistics, 1, file.partition, target.spec, schema, parsed("x = 2"))


def test_a_widened_column_is_compared_with_its_old_bounds(tmp_path: Path) -> None:
    target = target_for(tmp_path, {"x": "int", "f": "float"})
    (file,) = write_arrow(target, {"x": [1, 5], "f": [1.0, 5.0]})
    wide = schema_of({"x": "long", "f": "double"})
    for source in ("x = 9", "f = 9.5", pc.field("x") == 9):
        assert not may_match(file.statistics, 2, {}, target.spec, wide, parsed(source))


# The property -----------------------------------------------------------------------------------------------------------
def near(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


TEXTS = [
    "",
    "a",
    "b",
    "z" * 15,
    "z" * 16,
    "z" * 17,
    "z" * 15 + "\U0010ffff" * 3,
    "\ud7ff" * 18,
    "é" * 20,
    "\U0010ffff" * 17,
]
DOMAINS: dict[str, list[Any]] = {
    "long": [-(2**63), -1, 0, 1, 2, 2**63 - 1],
    "double": [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan],
    "string": TEXTS,
    "decimal(9, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("9999999.99")],
    "date": [dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    "timestamp": [dt.datetime(1960, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 2, 29, 23)],
    "boolean": [True, False],
}
TRANSFORMS = {
    "long": ["identity", "bucket[3]", "truncate[2]"],
    "double": ["identity"],
    "string": ["identity", "bucket[3]", "truncate[1]", "truncate[16]"],
    "decimal(9, 2)": ["identity", "bucket[3]", "truncate[100]"],
    "date": ["identity", "year", "month", "day", "bucket[3]"],
    "timestamp": ["year", "month", "day", "hour"],
    "boolean": ["identity"],
}
SCHEMA = {"a": "", "b": "", "n": "struct<c: long>"}


def literal(type_: str, value: Any) -> str | None:
    """A value as a literal of a filter's text; none where there is none for it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if type_ == "string":
        return f"'{value}'"
    if type_ == "timestamp":
        return f"'{value.isoformat()}'"
    if type_ == "date":
        return f"'{value}'"
    return str(value).lower() if isinstance(value, bool) else str(value)


@st.composite
def predicates(draw: Any, column: str, type_: str) -> str:
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "like", "nan"]))
    literals = [text for text in (literal(type_, v) for v in DOMAINS[type_]) if text]
    negation = draw(st.sampled_from(["", "not "]))
    if kind == "in":
        found = draw(st.lists(st.sampled_from(literals), min_size=1, max_size=3, unique=True))
        return f"{column} {negation}in ({', '.join(found)})"
    if kind == "null":
        return f"{column} is {negation}null"
    if kind == "nan" and type_ == "double":
        return f"{column} is {negation}nan"
    if kind == "like" and type_ == "string":
        start = draw(st.sampled_from([t[:n] for t in TEXTS for n in (1, 15, 16) if t]))
        return f"{column} {negation}like '{start}%'"
    operators = ["=", "!="] if type_ == "boolean" else ["=", "!=", "<", "<=", ">", ">="]
    return f"{negation}{column} {draw(st.sampled_from(operators))} {draw(st.sampled_from(literals))}"


@st.composite
def cases(draw: Any) -> tuple[Document, list[dict[str, Any]], str, list[tuple[str, str]]]:
    a, b = draw(st.sampled_from(sorted(DOMAINS))), draw(st.sampled_from(sorted(DOMAINS)))
    schema = schema_of({"a": a, "b": b, "n": "struct<c: long>"})
    row = st.fixed_dictionaries(
        {
            "a": st.none() | near(DOMAINS[a]),
            "b": st.none() | near(DOMAINS[b]),
            "n": st.none() | st.fixed_dictionaries({"c": st.none() | near(DOMAINS["long"])}),
        }
    )
    rows = draw(st.lists(row, min_size=1, max_size=8))
    types = {"a": a, "b": b, "n.c": "long"}
    parts = [
        draw(predicates(c, types[c])) for c in draw(st.lists(st.sampled_from(list(types)), min_size=1, max_size=3))
    ]
    text = parts[0]
    for part in parts[1:]:
        text = draw(st.sampled_from([f"{text} and {part}", f"{text} or {part}", f"not ({text} and {part})"]))
    partition = draw(
        st.sampled_from([[], [("a", t) for t in TRANSFORMS[a][:1]], [("b", draw(st.sampled_from(TRANSFORMS[b])))]])
    )
    return schema, rows, text, partition


def plain(schema: Document, rows: list[dict[str, Any]], source: Any) -> pa.Table:
    table = coerce(rows, schema).read_all()
    return table.filter(bind_filter(parsed(source), schema).arrow)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(cases())
def test_pruning_never_loses_a_row(tmp_path: Path, case: tuple[Document, list[dict[str, Any]], str, list[Any]]) -> None:
    schema, rows, text, partition = case
    target = target_for(tmp_path, schema, *partition)
    expected = plain(schema, rows, text).num_rows
    bound = bind_filter(parsed(text), schema)
    pruner = Pruner(bound, {1: target.spec})
    found = 0
    for file in write_arrow(target, rows):
        table = pq.ParquetFile(file.path.removeprefix("file://"))
        matching = table.read().filter(bound.arrow).num_rows
        if pruner.may_match(file.statistics, file.row_count, file.partition, 1):
            found += matching
        assert not matching or pruner.row_groups(table.metadata) == [0]
    assert found == expected


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_pruning_by_arrows_own_expressions_never_loses_a_row(tmp_path: Path, data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(["long", "double", "string", "decimal(9, 2)", "date", "timestamp"]))
    schema = schema_of({"a": type_})
    target = target_for(tmp_path, schema)
    rows = data.draw(st.lists(st.fixed_dictionaries({"a": st.none() | near(DOMAINS[type_])}), min_size=1, max_size=6))
    kind = target.arrow_schema.field("a").type
    first, second = (pa.scalar(data.draw(near(DOMAINS[type_])), kind) for _ in range(2))
    field = pc.field("a")
    source = data.draw(
        st.sampled_from(
            [
                *(field == first, field != first, field < first, field >= first, ~(field > first), ~(field == first)),
                *(field.is_null(), field.is_valid(), (field > first) & (field < second)),
                ~((field > first) | field.is_null()),
                field.isin([first.as_py(), second.as_py()]) if type_ in ("long", "string", "date") else field == second,
            ]
        )
    )
    expected = plain(schema, rows, source).num_rows
    (file,) = write_arrow(target, rows)
    pruner = Pruner(bind_filter(parsed(source), schema), {})
    assert not expected or pruner.may_match(file.statistics, file.row_count, {}, 1)
    assert not expected or pruner.row_groups(decode_footer(file.footer or b"")) == [0]


def test_the_helpers_of_these_tests_agree_with_the_table() -> None:
    schema = schema_of({"a": "long"})
    assert spec_of(schema, ("a", "bucket[2]"))["fields"][0]["source-id"] == schemas.columns(schema)[0].field_id
