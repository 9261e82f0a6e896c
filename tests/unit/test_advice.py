"""What an error advises works: its commands are there, with their options, and its spellings are taken."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import lakeward
from lakeward.arrow.filters import Filter, bind_filter, parse_filter
from lakeward.arrow.target import parquet_codec
from lakeward.cli.main import app
from lakeward.errors import LakewardError
from lakeward.iceberg.partitions import partition_from_path, partition_spec, sort_order
from lakeward.iceberg.schemas import parse_type, schema_from
from lakeward.names import parse_namespace, parse_table
from lakeward.ops import retention

SOURCE = Path(lakeward.__path__[0])
DOCS = SOURCE.parents[1] / "docs"


# Commands -------------------------------------------------------------------------------------------------------------------
def _commands() -> list[str]:
    """Every `lakeward ...` in the code's texts and on the pages of the documentation."""
    texts = [
        node.value
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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


def _unknown_in(words: list[str]) -> list[str]:
    """What of a command line is no command and no option of the one before it."""
    command: Any = typer.main.get_command(app)
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
    assert {command: wrong for command in commands if (wrong := _unknown_in(command.replace(",", "").split()))} == {}


# Spellings ------------------------------------------------------------------------------------------------------------------
SCHEMA, _ = schema_from({"id": "long", "ts": "timestamptz", "month": "int", "column": "long"})
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
