"""Lakeward's messages are its own: what a library's error says is never quoted, but facts of it are picked out."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lakeward
from lakeward.config import load_settings
from lakeward.errors import FileRefused, InvalidSetting, StorageError
from lakeward.iceberg import metadata
from lakeward.storage.parquet_footers import decode_footer

SOURCE = Path(lakeward.__path__[0])

# Where texts of others are looked at, recorded or shown.
QUOTES = {
    "astha.reasons:reason",
    "cli.query:_ask",
    "cli.root:Root.invoke",
    "components.compactor:Compactor._failed",
    "config:_where",
    "iceberg.commit:_encode",
    "iceberg.partitions:_field_document",
    "iceberg.types:checked",
    "arrow.accepted:raw_values",
    "arrow.csv_read:_is_open",
    "arrow.csv_read:_open",
    "arrow.csv_read:_whole",
    "spark.executors:_cause",
    "spark.executors:check_lakeward.missing",
    "spark.executors:no_keys",
    "arrow.json_read:_where",
    "log.source:_Shipped.__reduce__.arrive",
    "spark.jvm:java_message",
    "spark.write:_mapped_errors",
    "ops.operations_import:_reason",
    "ops.run_recorder:Recorder._not_ended",
    "ops.run_recorder:Recorder.flush",
    "ops.run_recorder:message_of",
    "ops.run_recorder:not_recorded",
    "db.group_commit:WriteFront._lead",
    "catalog.errors:_on_http_exception",
    "storage.local:storage_error",
    "storage.s3:_mapped",
    "db.database:Database._commit",
    "db.database:_reason",
    "db.database:_refuses_us",
    "tables.sql.files:is_duplicate",
}


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

    def _text_of(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Attribute) and node.attr in ("orig", "args", "msg", "desc", "detail"):
            node = node.value
        if isinstance(node, ast.Name) and node.id in self._foreign[-1]:
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


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if ".versions." not in name and not name.endswith(("__main__", ".env")):
            yield name, path


def _quotes() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, path in _modules():
        visitor = Quotes(importlib.import_module(name))
        visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
        found |= {f"{name.removeprefix('lakeward.')}:{scope}": lines for scope, lines in visitor.found.items()}
    return found


def test_no_text_of_a_library_gets_into_a_message() -> None:
    found = _quotes()
    assert {place: lines for place, lines in found.items() if place not in QUOTES} == {}
    assert set(found) >= QUOTES, "of what is named above some is no more"


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
