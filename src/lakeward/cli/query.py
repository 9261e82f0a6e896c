"""Spark SQL on the catalog, for reading."""

from __future__ import annotations

import logging
import re
from typing import Annotated, Any

import typer

from lakeward.cli.command import Context, SparkOptions
from lakeward.cli.progress import progress
from lakeward.cli.render import print_json, show_rows
from lakeward.errors import InvalidInput

READING = ("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN")
_WRITING = ("INSERT", "MERGE", "UPDATE", "DELETE")

# Texts and quoted names, comments, words, and everything else a letter at a time.
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|\w+|\S""", re.DOTALL
)


def sql(
    context: Context,
    spark: SparkOptions,
    statement: Annotated[str, typer.Argument(help="SELECT, WITH, SHOW, DESCRIBE or EXPLAIN.")],
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows.")] = 100,
) -> None:
    """Ask Spark SQL.

    Tables are namespace.table. What is pending in them becomes a snapshot first.
    """
    check_reading(statement)
    columns, rows = _ask(context, statement, limit, spark)
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


def _ask(context: Context, statement: str, limit: int, where: SparkOptions) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and up to `limit` + 1 rows."""
    from lakeward.spark.output import jvm_output_to

    with context.lake(**where.settings()) as lake, progress(quiet=context.json) as step:
        step("Starting Spark", 0, 2)
        with jvm_output_to(None):
            spark = lake.spark(conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
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
    return columns, [dict(zip(columns, (_plain(value) for value in row), strict=True)) for row in rows]


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
