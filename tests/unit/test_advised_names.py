"""What the code's texts name is there, spelled as users write it: settings, parameters, functions, options, variables, files."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pytest
import typer
from pyspark.sql import DataFrame

import lakeward
from lakeward import astha, errors, metadata
from lakeward.cli.main import app
from lakeward.config import Settings
from lakeward.db import schema
from lakeward.errors import LakewardError
from lakeward.iceberg.partitions import partition_spec
from lakeward.iceberg.schemas import parse_type, schema_from
from lakeward.lake.log import TopicLog
from lakeward.log import source
from lakeward.tables.records.properties import PROPERTIES
from tests.support.source import DOCS, modules

SCHEMA, _ = schema_from({"id": "long", "ts": "timestamptz"})

# Modules whose texts are SQL alone, or words of documents.
_NO_ADVICE = (
    *("db/schema/", "db/migrations/", "db/sizes.py", "db/types.py", "db/feed_triggers.py", "db/log_triggers.py"),
    *("db/engines.py", "/sql/", "spark/columns.py", "spark/rules.py", "log/file_constants.py", "demo/"),
)
# Other texts that are SQL, and patterns.
_SQL = re.compile(
    r"\W*(SELECT|PRAGMA|SET [A-Za-z_]+ ?=|INSERT|UPDATE|DELETE FROM|WITH |coalesce|\S+ IS NO)|.*(\(\?|\\[sd])|curlCode",
    re.DOTALL,
)

# What is not Lakeward's, by where a user finds it.
_PROGRAMS = {"--packages", "--add-modules"}  # of spark-submit and of Java
_SPARK = {"spark.archives", "spark.executor.memory", "spark.pyspark.python"}
_ENVIRONMENT = {"AWS_ACCESS_KEY_ID", "JAVA_HOME"}
_DATABASE = {"max_connections", "pg_hba", "pg_prepared_xacts", "pg_terminate_backend", "lock_timeout"}
_OTHERS = {
    "tzinfo",
    "primary_key",
    "enabled",
}  # of times, of columns' documents, of components' tables in lakeward.toml
_OBJECTS = {"df": DataFrame, "value": datetime, "datetime": datetime, "copy": copy}


@cache
def _texts() -> list[tuple[str, str]]:
    """The code's texts for people, `…` where a value goes, with the places they stand at."""
    found = []
    for module in modules():
        if any(part in module.path for part in _NO_ADVICE):
            continue
        inner: set[int] = set()
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
                inner |= {id(part) for part in ast.walk(node)}
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                inner.add(id(node.value))  # a docstring
            text = _text(node)
            if text is None or id(node) in inner:
                continue
            inner |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            inner |= {id(part) for part in ast.walk(node) if isinstance(part, ast.BinOp)}
            if " " in text and not _SQL.match(text):
                found.append((f"{module.path}:{getattr(node, 'lineno', 0)}", text))
    return found


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None and right is None else (left or "…") + (right or "…")
    return None


@cache
def _offered() -> dict[str, Any]:
    """What the reference shows of Python, by its name."""
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("python*.md"))
    shown = re.findall(r"^::: ([\w.]+)", pages, re.MULTILINE)
    shown += [f"{module.__name__}.{name}" for module in (lakeward, astha, metadata) for name in module.__all__]
    return {path.rpartition(".")[2]: _found(path) for path in shown}


def _found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _members(class_: Any) -> dict[str, Any]:
    return {name: getattr(class_, name) for name in dir(class_) if not name.startswith("_")}


def _parameters(function: Any) -> set[str]:
    if hasattr(function, "__struct_fields__"):
        return set(function.__struct_fields__)
    try:
        return {*inspect.signature(function).parameters, *getattr(function, "__annotations__", ())}
    except (TypeError, ValueError):
        return set()


@cache
def _words() -> set[str]:
    """Every name that a user can write or meet: settings, what the reference shows with its parameters, columns, codes."""
    words = {field.name for field in fields(Settings)} | set(_offered()) | _DATABASE | _OTHERS
    for offered in _offered().values():
        words |= _parameters(offered) | set(_members(offered)) | set(getattr(offered, "__annotations__", ()))
        for member in _members(offered).values():
            words |= _parameters(member)
    for table in schema.metadata.tables.values():
        words |= {table.name, *table.columns.keys()}
    words |= {each.code for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, LakewardError)}
    return words | set(vars(pyarrow.compute))


def _is_option(name: str) -> bool:
    return name in _PROGRAMS | _options(_top())


@cache
def _top() -> Any:
    """The command `lakeward`, which has all others."""
    return typer.main.get_command(app)


@cache
def _options(command: Any) -> set[str]:
    own = {option for each in command.params for option in each.opts + each.secondary_opts} | {"--help"}
    return own.union(*(_options(each) for each in getattr(command, "commands", {}).values()))


def _is_in_environment(name: str) -> bool:
    setting = name.removeprefix("LAKEWARD_").lower()
    known = [field.name for field in fields(Settings)]
    if name.endswith("_"):  # of several
        return any(each.startswith(setting) for each in known)
    return name in _ENVIRONMENT or setting in known or _is_read(f'"{name}"')


@cache
def _is_read(name: str) -> bool:
    return any(f"environ.get({name}" in each.text for each in modules())


def _is_there(name: str) -> bool:
    """A dotted name: of Python as a user has it, of a property, of a file."""
    if name in _SPARK or name in PROPERTIES or name.endswith((".toml", ".db", ".json")):
        return name in _SPARK or name in PROPERTIES or Path(name).name in FILES
    first, *rest = name.split(".")
    found: Any = {"lake": lakeward.Lake, "lakeward": lakeward, **_OBJECTS}.get(first)
    for part in rest:
        found = getattr(found, part, None)
        if found is lakeward.Lake.log:
            found = TopicLog
    return found is not None


FILES = {"lakeward.toml", "lakeward.db", "gz.metadata.json", "metadata.json"}


def _is_call(text: str) -> bool:
    """A call as a message shows it: a type, a transform, or something that the reference shows, with its parameters."""
    name, _, arguments = text.rstrip(")").partition("(")
    last = name.rpartition(".")[2]
    if hasattr(pyarrow, name) or last in {"spark_conf", *_OBJECTS} or _is_transform(text) or _is_type(text):
        return True
    called = [_offered()[last]] if last in _offered() else []
    called += [each for offered in _offered().values() for member, each in _members(offered).items() if member == last]
    given = set(re.findall(r"(\w+)=", arguments))
    return any(given <= _parameters(each) for each in called) or (not called and _is_there(name)) or last in _DATABASE


def _is_transform(text: str) -> bool:
    name, _, arguments = text.replace("…", "id").rstrip(")").partition("(")
    try:
        partition_spec([f"{name}({arguments.replace('at', 'ts')})"], SCHEMA)
    except LakewardError:
        return text == "truncate(16)"  # of metrics
    return True


def _is_type(text: str) -> bool:
    try:
        parse_type(text.replace("…, …", "9, 2").replace("p, s", "9, 2"))
    except LakewardError:
        return False
    return True


def _is_sparks(name: str) -> bool:
    """Spark writes names so, and options of its sources."""
    return name.lower() in source.OPTIONS or name in {"toArrow", "availableNow"}


NAMES: dict[str, tuple[Callable[[str], Any], str]] = {
    "words": (lambda name: name in _words(), r"(?<![\w.…/-])[a-z]+(?:_[a-z0-9]+)+\b(?![(.…])"),
    "keyword arguments": (lambda name: name in _words(), r"(?<![\w.…<'-])([a-z_]+)=(?=[…'\w])"),
    "calls": (_is_call, r"(?<![\w.'])[A-Za-z_][\w.]*\([^()]*\)"),
    "dotted names": (_is_there, r"(?<![\w.…])(?:lake|lakeward|spark|df|value|copy|datetime|gz)(?:\.[a-z_-]+)+"),
    "options of commands": (_is_option, r"(?<![\w-])--[a-z][a-z-]*"),
    "variables of the environment": (_is_in_environment, r"(?<![\w…])[A-Z][A-Z0-9]+_[A-Z0-9_]+\b"),
    "names as Spark writes them": (_is_sparks, r"(?<![.\w])[a-z]+[A-Z][a-z]\w+"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_what_a_text_names_is_there_and_is_spelled_as_users_write_it(kind: str) -> None:
    is_there, pattern = NAMES[kind]
    found = {name: place for place, text in _texts() for name in re.findall(pattern, text)}
    assert found
    assert {name: place for name, place in found.items() if not is_there(name)} == {}


def test_options_of_spark_are_named_where_spark_reads_or_beside_the_argument() -> None:
    for place, text in _texts():
        for option in re.findall(r"(?<![.\w])[a-z]+[A-Z][a-z]\w+", text):
            argument = re.sub("[A-Z]", lambda big: f"_{big[0].lower()}", option)
            assert place.startswith(("log/source.py", "spark/")) or argument in text or option == "toArrow", place


def test_a_command_that_is_advised_has_the_arguments_that_it_needs() -> None:
    checked = 0
    for place, text in _texts():
        for words in re.findall(r"[`']lakeward ([a-z][^`']*)[`']", text):
            command = _top()
            given = words.split()
            while given and given[0] in getattr(command, "commands", ()):
                command = command.commands[given.pop(0)]
            needed = [each for each in command.params if each.param_type_name == "argument" and each.required]
            values = [word for word in given if not word.startswith("-")]
            assert len(values) >= len(needed) or words == "sql", (place, words)
            checked += 1
    assert checked > 40
