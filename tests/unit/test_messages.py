"""Lakeward's messages are its own: what a library's error says is never quoted, but facts of it are picked out."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.compute as pc
import pytest

from lakeward.arrow.filters import Filter, bind_filter, parse_filter
from lakeward.config import load_settings
from lakeward.errors import FileRefused, InvalidFilter, InvalidSchema, InvalidSetting, StorageError
from lakeward.iceberg import metadata, types
from lakeward.iceberg.schemas import schema_from
from lakeward.storage.parquet_footers import decode_footer
from tests.support.source import modules

# Where texts of others are looked at, recorded or shown, and why that is right there.
QUOTES = {
    "errors:says": "looks at it, and tells nobody",
    "config:_where": "takes the line and the column out of it",
    "arrow.json_read:_where": "takes the place out of it",
    "arrow.csv_read:_is_open": "looks at it",
    "arrow.csv_read:_open": "looks at it",
    "arrow.csv_read:_whole": "looks at it",
    "spark.executors:_cause": "takes the names of Java's classes out of it",
    "spark.write:_mapped_errors": "what Spark says of a person's own DataFrame, and words of Lakeward's that Spark carries",
    "cli.query:_ask": "what Spark says of a person's own SQL",
    "db.database:_refusal": "the SQL may be a person's own, and triggers say there what Lakeward refuses",
    "ops.operations_import:_reason": "names the column that a row lacks",
    "astha.reasons:reason": "records what a person's own component raised",
    "components.compactor:Compactor._failed": "records what ended a job, for who looks after it",
    "ops.run_recorder:Recorder._not_ended": "records what ended a run",
    "ops.run_recorder:Recorder.flush": "records what ended a run",
    "ops.failures:message_of": "records what ended a run",
    "ops.failures:not_recorded": "is for the log",
}
_TEXTS = ("orig", "args", "msg", "desc", "detail", "reason", "response")  # of an error
_OF_TEXTS = ("strip", "splitlines", "partition", "removeprefix", "lower", "split")
_KEYS = ("msg", "Message")  # of a library's answer, where it says so in words


class Quotes(ast.NodeVisitor):
    """The places in a module where the text of an error that is not Lakeward's gets into a text."""

    def __init__(self, module: ModuleType) -> None:
        self._module = vars(module)
        self._scopes: list[str] = []
        self._foreign: list[set[str]] = [set()]
        self.found: dict[str, list[int]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self._enter(node, {each.arg for each in arguments if self._is_foreign(each.annotation)})

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node, set())

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        names = {node.name} if node.name and self._is_foreign(node.type) else set()
        hidden = {node.name} - names
        before = self._foreign[-1]
        self._foreign[-1] = (before - hidden) | names
        self.generic_visit(node)
        self._foreign[-1] = before

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("log", "self._log"):
            return  # a log may say all that is known
        if isinstance(node.func, ast.Name) and node.func.id in ("str", "repr", "format"):
            self._text_of(node.args[0] if node.args else None)
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self._text_of(node.value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A name for such an error, or for what it says, is as good as the error itself."""
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        self._foreign[-1] = self._foreign[-1] | names if self._says(node.value) else self._foreign[-1] - names
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.value is not None and self._says(node.value):
            self._foreign[-1] = self._foreign[-1] | {node.target.id}
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        """What is known to be Lakeward's in one branch may be told there."""
        before = self._foreign[-1]
        test = node.test
        self.visit(test)
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance" and not self._is_foreign(test.args[1]):
            self._foreign[-1] = before - {ast.unparse(test.args[0])}
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        in_body, self._foreign[-1] = self._foreign[-1] - before, before
        for part in node.orelse if isinstance(node.orelse, list) else [node.orelse]:
            self.visit(part)
        self._foreign[-1] = self._foreign[-1] | in_body

    visit_IfExp = visit_If

    def _says(self, node: ast.AST | None) -> bool:
        """Whether it is such an error, or text of one."""
        if isinstance(node, ast.Name):
            return node.id in self._foreign[-1]
        if isinstance(node, ast.Attribute):
            return node.attr in _TEXTS and self._says(node.value)
        if isinstance(node, ast.Subscript):
            return self._says(node.value) or (isinstance(node.slice, ast.Constant) and node.slice.value in _KEYS)
        if isinstance(node, ast.BoolOp):
            return any(self._says(each) for each in node.values)
        if isinstance(node, ast.IfExp):
            return self._says(node.body) or self._says(node.orelse)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # text.strip(), answer.get("Message")
            is_told = node.func.attr == "get" and any(
                isinstance(a, ast.Constant) and a.value in _KEYS for a in node.args
            )
            return is_told or (node.func.attr in _OF_TEXTS and self._says(node.func.value))
        return (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("str", "repr")
            and self._says(next(iter(node.args), None))
        )

    def _text_of(self, node: ast.expr | None) -> None:
        if node is not None and self._says(node):
            self.found.setdefault(".".join(self._scopes), []).append(node.lineno)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, foreign: set[str]) -> None:
        self._scopes.append(node.name)
        self._foreign.append(self._foreign[-1] | foreign)
        self.generic_visit(node)
        self._foreign.pop()
        self._scopes.pop()

    def _is_foreign(self, kind: ast.expr | None) -> bool:
        """Whether an annotation, or what a handler catches, may be an error that is not Lakeward's."""
        if kind is None:
            return False
        return any(self._is_foreign_class(each) for each in self._classes(kind))

    def _classes(self, kind: ast.expr) -> Iterator[Any]:
        if isinstance(kind, ast.Tuple):
            for each in kind.elts:
                yield from self._classes(each)
        elif isinstance(kind, ast.BinOp):
            yield from self._classes(kind.left)
            yield from self._classes(kind.right)
        elif isinstance(kind, ast.Name | ast.Attribute):
            text = ast.unparse(kind)
            found = _value(text, self._module)
            yield from found if isinstance(found, tuple) else [found if found is not None else text]

    def _is_foreign_class(self, kind: Any) -> bool:
        if isinstance(kind, str):  # imported where it is used
            return kind.endswith(("Error", "Exception"))
        return isinstance(kind, type) and issubclass(kind, BaseException) and not kind.__module__.startswith("lakeward")


def _value(text: str, names: dict[str, Any]) -> Any:
    first, *rest = text.split(".")
    found = names.get(first, getattr(builtins, first, None))
    for name in rest:
        found = getattr(found, name, None)
    return found


def _quotes() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for module in modules():
        if "/versions/" in module.path or module.path.endswith(("__main__.py", "/env.py")):
            continue
        visitor = Quotes(importlib.import_module(module.name))
        visitor.visit(module.tree)
        found |= {f"{module.name.removeprefix('lakeward.')}:{scope}": lines for scope, lines in visitor.found.items()}
    return found


def test_no_text_of_a_library_gets_into_a_message() -> None:
    found = _quotes()
    assert {place: lines for place, lines in found.items() if place not in QUOTES} == {}
    assert set(found) >= set(QUOTES), "of what is named above some is no more"


@pytest.mark.parametrize(
    ("lines", "is_quote"),
    [
        ("failure = error; f'{failure}'", True),
        ("text = str(error).strip().splitlines()[0]", True),
        ("f'{error.orig}'", True),
        ("f\"{answer.get('Message')}\"", True),
        ("f\"{first['msg']}\"", True),
        ("f'{type(error).__name__}'", False),
        ("error = 'ours'; f'{error}'", False),
        ("f'{error}' if isinstance(error, InvalidSetting) else ''", False),
        ("f'{error}' if isinstance(error, KeyError) else ''", True),
    ],
)
def test_the_rule_sees_what_quotes_a_library(lines: str, is_quote: bool) -> None:
    module = ModuleType("tried")
    vars(module)["InvalidSetting"] = InvalidSetting
    visitor = Quotes(module)
    visitor.visit(ast.parse(f"def f(answer, first):\n    try: pass\n    except Exception as error: {lines}"))
    assert bool(visitor.found) == is_quote


def test_a_settings_file_that_is_no_toml_names_the_place_in_our_words(tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    for text, place in ((b"pool_size = 3\nregistry = x\n", "line 2, column 12"), (b'a = "\xff"', "byte 5 is no UTF-8")):
        file.write_bytes(text)
        with pytest.raises(InvalidSetting) as refused:
            load_settings(file, environment={})
        assert str(file) in str(refused.value) and place in str(refused.value)
        assert "Invalid value" not in str(refused.value) and "codec" not in str(refused.value)


@pytest.mark.parametrize("data", [b"{", b"[]", b"\x1f\x8bno gzip"])
def test_a_damaged_metadata_file_is_told_in_our_words(data: bytes) -> None:
    with pytest.raises(StorageError) as refused:
        metadata.decode(data)
    assert f"a metadata file of {len(data)} bytes is damaged" in str(refused.value)
    assert str(refused.value.__cause__) not in str(refused.value)


def test_a_damaged_footer_is_told_in_our_words() -> None:
    with pytest.raises(FileRefused) as refused:
        decode_footer(b"PAR1 and nothing")
    assert "16 bytes" in str(refused.value) and str(refused.value.__cause__) not in str(refused.value)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({"type": "list", "element": "int"}, "lacks 'element-required'"),
        ({"type": "map", "key": "int", "value": "int"}, "lacks 'value-required'"),
        ({"type": "struct"}, "lacks 'fields'"),
        ({"type": "struct", "fields": 5}, "fields that are no list"),
        ({"type": "struct", "fields": ["id"]}, "column 'id' is no object"),
        ({"type": "struct", "fields": [{"name": "id"}]}, "lacks 'type'"),
        ({"type": []}, "neither struct, list nor map"),
        (None, "neither struct, list nor map"),
    ],
)
def test_a_damaged_document_of_a_type_says_what_is_wrong_with_it(document: Any, what: str) -> None:
    with pytest.raises(InvalidSchema, match=re.escape(what)):
        types.checked(document)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (pc.field("none") == 1, "the table has id"),
        (pc.field("id") == "a", "the table has id|of another type|go together"),
    ],
)
def test_a_filter_of_arrows_that_does_not_fit_says_why(expression: pc.Expression, why: str) -> None:
    schema, _ = schema_from({"id": "long"})
    with pytest.raises(InvalidFilter, match=why) as refused:
        bind_filter(parse_filter(expression) or Filter(), schema)
    assert str(refused.value.__cause__) not in str(refused.value)
