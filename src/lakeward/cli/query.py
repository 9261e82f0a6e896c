"""Spark SQL on the catalog, for reading."""

from __future__ import annotations

import logging
import re
import shlex
import sys
import time
from typing import Annotated, Any

import typer

from lakeward.cli.command import Context, SparkOptions
from lakeward.cli.progress import progress
from lakeward.cli.render import print_json, show_rows
from lakeward.errors import InvalidFilter, InvalidInput

READING = ("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
_WRITING = ("INSERT", "MERGE", "UPDATE", "DELETE")

# Texts and quoted names, comments, words, and everything else a letter at a time.
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|\w+|\S""", re.DOTALL
)

# What `lakeward scan` answers as well. Double quotes, backquotes, backslashes and LIMIT 0 mean something else to it.
_PLAIN = re.compile(
    r"""\s*SELECT\s+(?P<columns>\*|[a-z_]\w*(?:\s*,\s*[a-z_]\w*)*)\s+FROM\s+(?P<table>\w+\.\w+)"""
    r"""(?:\s+WHERE\s+(?P<filter>[^"`\\]+?))?(?:\s+LIMIT\s+(?P<limit>[1-9]\d*))?[\s;]*""",
    re.IGNORECASE,
)


def sql(
    context: Context,
    spark: SparkOptions,
    statement: Annotated[str, typer.Argument(help="SELECT, WITH, SHOW, DESCRIBE or EXPLAIN.")],
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 100,
) -> None:
    """Ask Spark SQL.

    Tables are namespace.table. What is pending in them becomes a snapshot first. Spark is started for the statement, which takes
    seconds; what that took is said on standard error, with the `lakeward scan` that needs no Spark where a plain SELECT has one.
    """
    check_reading(statement)
    columns, rows, starting = _ask(context, statement, limit, spark)
    if not context.json:
        scan = without_spark(statement, limit)
        print(f"Spark took {starting:.1f} s to start{f'; without it: {scan}' if scan else ''}", file=sys.stderr)
    # How many there are in all is not asked: it would run the query twice.
    truncated = len(rows) > limit
    if context.json:
        print_json({"columns": columns, "rows": rows[:limit], "truncated": truncated})
        return
    show_rows("rows", rows[:limit], columns, to=context)
    if truncated:
        print(f"the first {limit:,} rows; --limit shows more")


def check_reading(statement: str) -> None:
    """Refuse what may change something.

    Raises:
        InvalidInput: naming the word that a reading statement cannot start with, or hold outside of brackets.
    """
    tokens = [token for token in _TOKEN.findall(statement) if not token.startswith(("--", "/*"))]
    words = [token.upper() for token in tokens]
    first = next((word for word in words if word != "("), "")
    if first not in READING:
        raise InvalidInput(
            f"`lakeward sql` only reads: a statement starts with {', '.join(READING[:-2])} or {READING[-1]}, not "
            f"{first or 'nothing'!s}; write with lake.append or a Spark session of lake.spark()"
        )
    if first == "WITH" and (found := _outside_brackets(words, _WRITING)):
        raise InvalidInput(
            f"`lakeward sql` only reads, and this WITH leads to {found}; a column of that name goes between backquotes"
        )


def _outside_brackets(words: list[str], wanted: tuple[str, ...]) -> str | None:
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word in wanted:
            return word
    return None


def without_spark(statement: str, limit: int) -> str | None:
    """The `lakeward scan` that gives at most `limit` of the rows of a plain SELECT; none for any other statement."""
    plain = _PLAIN.fullmatch(statement)
    if plain is None:
        return None
    words = ["lakeward", "scan", plain["table"]]
    if plain["columns"] != "*":
        words += [word for name in re.split(r"\s*,\s*", plain["columns"]) for word in ("--columns", name)]
    if plain["filter"]:
        from lakeward.arrow.filters import parse_filter

        try:
            parse_filter(plain["filter"])
        except InvalidFilter:
            return None
        words += ["--filter", plain["filter"]]
    return shlex.join([*words, "--limit", str(min(int(plain["limit"] or limit), limit))])


def _ask(
    context: Context, statement: str, limit: int, where: SparkOptions
) -> tuple[list[str], list[dict[str, Any]], float]:
    """The columns, up to `limit` + 1 rows, and the seconds that Spark took to start."""
    from lakeward.spark.output import jvm_output_to

    with context.lake(**where.settings()) as lake, progress(quiet=context.json) as step:
        step("Starting Spark", 0, 2)
        began = time.monotonic()
        with jvm_output_to(None):
            spark = lake.spark(conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
        starting = time.monotonic() - began
        from pyspark.errors import PySparkException

        # pyspark logs every error that it raises, with the whole stack of the JVM, to standard error.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        step("Running the statement", 1, 2)
        try:
            answer = spark.sql(statement)
            rows = answer.limit(limit + 1).collect() if _can_limit(statement) else answer.collect()
            columns = _distinct(answer.columns)
        except PySparkException as error:
            raise InvalidInput(f"Spark refused the statement: {_short(str(error))}") from None
        finally:
            spark.stop()
        step("Running the statement", 2, 2)
    return columns, [dict(zip(columns, (_plain(value) for value in row), strict=True)) for row in rows], starting


def _can_limit(statement: str) -> bool:
    """What lists metadata is short, and some of it is no query that can be limited."""
    return statement.lstrip(" \t\r\n(").upper().startswith(("SELECT", "WITH"))


def _distinct(columns: list[str]) -> list[str]:
    """A row is shown as a mapping, so a name that comes twice gets a number."""
    seen: dict[str, int] = {}
    result = []
    for column in columns:
        seen[column] = seen.get(column, 0) + 1
        result.append(column if seen[column] == 1 else f"{column}_{seen[column]}")
    return result


def _plain(value: Any) -> Any:
    """Spark's rows within rows as mappings."""
    from pyspark.sql import Row

    if isinstance(value, Row):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def _short(message: str) -> str:
    """Spark's first lines: the error and where, without the plan and the Java stack that follow."""
    lines = message.strip().splitlines()
    end = next(
        (at for at, line in enumerate(lines) if line.startswith(("JVM stacktrace", "'", "+-", "\tat "))), len(lines)
    )
    return "\n".join(lines[:end][:8]).strip()
