"""What an error advises works: its commands are there, with their options, and its spellings are taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import typer

from lakeward.arrow.accepted import raw_values
from lakeward.arrow.filters import Filter, bind_filter, parse_filter
from lakeward.arrow.json_lines import json_codec
from lakeward.arrow.target import parquet_codec
from lakeward.cli import times
from lakeward.cli.command import SparkOptions
from lakeward.cli.main import app
from lakeward.cli.names import parse_name
from lakeward.cli.positions import _document
from lakeward.cli.records import from_lines
from lakeward.cli.tables import parse_columns
from lakeward.cli.topics import parse_retention
from lakeward.config import Settings
from lakeward.errors import LakewardError
from lakeward.iceberg.arrow import from_arrow
from lakeward.iceberg.partitions import partition_from_path, partition_spec, sort_order
from lakeward.iceberg.schemas import parse_type, schema_from
from lakeward.lake.writes import batch_of
from lakeward.log.read import resolved
from lakeward.log.records import Topic
from lakeward.log.source import _by_topic
from lakeward.names import parse_namespace, parse_table
from lakeward.ops import retention
from lakeward.ops.records.schema_versions import SchemaDefinition
from lakeward.ops.schema_changes import normal
from lakeward.storage.locations import warehouse_location
from tests.support.source import DOCS, modules


# Commands -------------------------------------------------------------------------------------------------------------------
def _commands() -> list[str]:
    """Every `lakeward ...` in the code's texts and on the pages of the documentation."""
    texts = [
        node.value
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    texts += [
        page.read_text(encoding="utf-8")
        for page in DOCS.rglob("*.md")
        if page.parent.name != "decisions" and page.name != "cli.md"
    ]
    found = {words for text in texts for words in re.findall(r"[`']lakeward ([a-z][^`']*)[`']", text)}
    return sorted(
        found | {words for text in texts for words in re.findall(r"^\$ lakeward ([a-z][^\n#]*)", text, re.MULTILINE)}
    )


def _unknown_in(command: Any, words: list[str]) -> list[str]:
    """What of a command line is no command and no option of the one before it."""
    names = iter(words)
    for word in names:
        commands = getattr(command, "commands", None)  # of a group
        if commands is None or word.startswith("-"):
            break
        if word not in commands:
            return [word]
        command = commands[word]
    else:
        return []
    known = {option for each in command.params for option in each.opts + each.secondary_opts} | {"--help"}
    return [word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in known]


def test_every_command_that_a_message_or_a_page_names_is_there_with_its_options() -> None:
    commands = _commands()
    assert len(commands) > 50
    top = typer.main.get_command(app)
    unknown = {command: _unknown_in(top, command.replace(",", "").split()) for command in commands}
    assert {command: wrong for command, wrong in unknown.items() if wrong} == {}


# Spellings ------------------------------------------------------------------------------------------------------------------
SCHEMA, _ = schema_from({"id": "long", "ts": "timestamptz", "month": "int", "column": "long"})
TOPIC = msgspec.convert(
    {
        "name": "orders",
        "partition_count": 1,
        "retention_ms": None,
        "config": {},
        "created_at": "2026-01-02T03:04:05Z",
        "topic_id": 1,
        "topic_uuid": "",
        "location": "",
        "value_schema": None,
        "deleted_at": None,
        "updated_at": "2026-01-02T03:04:05Z",
    },
    Topic,
)


def _read(text: str) -> Any:
    """What Python reads in an error's text, where a word stands for itself."""
    text = text.replace("from", "start")
    return eval(text, {word: word for word in re.findall(r"\w+", text) if word != "None"})


def _arrow(text: str) -> pa.DataType:
    found = eval(text, {**vars(pa), "tz": "UTC"})
    return found() if callable(found) else found


def _time(text: str) -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC if text == "tzinfo=UTC" else None)


ADVICE: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    # (what refuses, with what, the pattern of what it advises)
    "hours": (retention.schedule, "midnight", r"'(\d\d:\d\d-\d\d:\d\d)'|'(\d\d?-\d)'"),
    "table": (parse_table, "orders", r"write '([\w.]+)'"),
    "namespace": (parse_namespace, (), r"such as '(\w+)'"),
    "type": (parse_type, "text8", r"\b(boolean|int|long|float|double|date|time|timestamp|timestamptz|string|uuid|binary)\b"),
    "empty type": (parse_type, "", r"'(\w+)'"),
    "filter": (lambda text: bind_filter(parse_filter(text) or Filter(), SCHEMA), 1, r'"(month = 1)"'),
    "codec": (parquet_codec, "rar", r"\b(zstd|snappy|gzip|lz4|none)\b"),
    "sort": (lambda text: sort_order([text], SCHEMA), "", r"'(id)'|'(ts desc)'"),
    "partition": (lambda text: partition_spec([text], SCHEMA), 1.5, r"'(day\(ts\))'"),
    "transform": (lambda text: partition_spec([text], SCHEMA), "bucket(id)", r"write (bucket\(\d+, \w+\))"),
    "table with dots": (parse_name, 'a."b', r"(\"a\.b\"\.\"c\")"),
    "age": (times.parse_age, "7 weeks", r"such as (\w+)"),
    "time": (times.parse_time, "yesterday", r"such as (7d|2026\S+Z)"),
    "time's zone": (times.parse_time, "2026-01-01", r"(?:write|or) (\S+)"),
    "retention": (parse_retention, "a while", r"(\d+\w+|forever)\b"),
    "setting of Spark": (lambda text: SparkOptions(spark_conf=[text]).settings(), "spark.x", r"--conf (\S+=\w+)"),
    "record": (lambda line: list(from_lines([line.encode()], TOPIC)), "[]", r'such as (\{.*?\})'),
    "record's time": (lambda text: list(from_lines([b'{"value": "v", "timestamp": "%s"}' % text.encode()], TOPIC)), "noon", r'such as "(2026\S+)"'),
    "position": (_document, "5", r"'(\{.*?\})'"),
    "columns": (parse_columns, "id", r"'(id long)'"),
    "warehouse": (warehouse_location, "ftp://x", r"(file:///\w+|s3://[\w/]+)"),
    "bucket": (warehouse_location, "s3://", r"(s3://\w+/\w+)"),
    "host": (warehouse_location, "file://host/x", r"(file:///[\w/]+)"),
    "updates": (lambda text: Settings(metadata_updates=text), "never", r"'(sync|async)'"),
    "types": (parse_type, "list<", r"'(long|\w+\(9, 2\)|\w+<[^']+>)'"),
    "codec of JSON": (json_codec, "rar", r"\b(zstd|gzip|none)\b"),
    "offsets": (lambda where: resolved([], where, "startingOffsets", ending=False), "first", r"'(earliest|latest)'"),
    "Spark's offsets": (lambda text: _by_topic("startingOffsets", text), "first", r'(\{\"orders.*\})'),
    "batch": (lambda key: batch_of(_read(key)), "'one'", r"(\(stream, id\)|\(stream, id, from, to\))"),
    "source's column": (lambda column: normal(SchemaDefinition([_read(column)])), "'id'", r"such as (\{.*?\})"),
    "source's type": (lambda type_: normal(SchemaDefinition([{"name": "id", "type": _read(type_)}])), "None", r"such as ('.*?')"),
    "zone": (lambda text: raw_values([_time(text)], "timestamptz"), "", r"such as (tzinfo=UTC)"),
    "no zone": (lambda text: raw_values([_time(text)], "timestamp"), "tzinfo=UTC", r"make it (naive)"),
    "date": (lambda text: raw_values([eval(text, {"value": datetime(2026, 1, 2)})], "date"), "value", r"give (value\.date\(\))"),
    "unsigned": (lambda text: from_arrow(_arrow(text)), "uint64()", r"(int64|decimal128\(20, 0\))"),
    "nanoseconds": (lambda text: from_arrow(_arrow(text)), "timestamp('ns')", r"(timestamp\('us'\))"),
    "nanoseconds in a zone": (lambda text: from_arrow(_arrow(text)), "timestamp('ns', tz='UTC')", r"(timestamp\('us', tz\))"),
    "time of a day": (lambda text: from_arrow(_arrow(text)), "time64('ns')", r"(time64\('us'\))"),
    "uuid partition": (lambda text: partition_spec([text], schema_from({"u": "uuid"})[0]), "u", r"by (bucket\(16, \w+\))"),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVICE)
def test_what_an_error_advises_to_write_is_taken(name: str) -> None:
    call, wrong, pattern = ADVICE[name]
    with pytest.raises(LakewardError) as refused:
        call(wrong)
    advised = [next(filter(None, each.groups())) for each in re.finditer(pattern, str(refused.value))]
    assert advised, str(refused.value)
    for spelling in dict.fromkeys(advised):
        call(spelling)


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz", "string", "long", "double", "boolean"])
def test_a_partition_that_is_refused_names_its_fields_as_they_are_written(type_: str) -> None:
    schema, _ = schema_from({"p": type_})
    spec, _ = partition_spec(["p"], schema)
    with pytest.raises(LakewardError, match="write p=") as refused:
        partition_from_path(schema, spec, "q=1")
    assert "`lakeward files TABLE`" in str(refused.value)


def test_schemas_that_are_advised_are_taken() -> None:
    for wrong, pattern in ((3, r"(\{'id': 'long'\})"), (["id"], r"(\('id', 'long'\))")):
        with pytest.raises(LakewardError) as refused:
            schema_from(wrong)
        match = re.search(pattern, str(refused.value))
        assert match is not None, str(refused.value)
        advised = ast.literal_eval(match[1])
        schema_from(advised if isinstance(advised, dict) else [advised])
