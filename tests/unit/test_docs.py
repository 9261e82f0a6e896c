"""Reference pages name what the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import lakeward
from lakeward import Lake, errors
from lakeward.astha import AsthaConfig
from lakeward.config import Settings
from lakeward.db import schema
from lakeward.iceberg.merging import Rule
from lakeward.maintenance.compaction_plan import Rules
from lakeward.tables.records import properties
from lakeward.tables.records.properties import ENGINES, PROPERTIES, Property
from tools import reference

DOCS = Path(__file__).parents[2] / "docs"


def test_files_that_the_architecture_names_are_there() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.py)`", text)
    assert len(named) > 20
    assert [each for each in named if not (Path(lakeward.__file__).parent / each).exists()] == []


def test_the_reference_names_every_setting() -> None:
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(Settings) if f"`{f.name}`" not in text] == []


def test_the_page_of_the_registry_has_a_row_for_each_column_of_each_table() -> None:
    text = (DOCS / "reference" / "registry.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for table in schema.metadata.tables.values():
        rows = re.findall(r"^\| \**([\w, *]+?)\** \|", sections.get(table.name, ""), re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"\w+", row)}
        assert [column.name for column in table.columns if column.name not in named] == [], table.name


def test_the_tuning_page_tells_the_defaults_of_the_code() -> None:
    text = (DOCS / "how-to" / "tune.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `([\w.-]+)`[^|]*\| ([^ |]+)", text, re.MULTILINE))
    for name in (
        "keep_snapshots",
        "keep_metadata_files",
        "quarantine_seconds",
        "hold_timeout_seconds",
        "lease_seconds",
        "feed_keep_seconds",
    ):
        assert float(shown[name]) == getattr(Settings(), name), name
    assert int(shown[properties.TARGET_FILE_SIZE.name]) == properties.TARGET_FILE_SIZE.default
    writer = {name: each.default for name, each in inspect.signature(Lake.writer).parameters.items()}
    assert float(shown["rotate_seconds"]) == writer["rotate_seconds"]
    assert int(shown["rotate_rows"].replace(",", "")) == writer["rotate_rows"]
    assert int(shown["rotate_bytes"]) << 20 == writer["rotate_bytes"]
    assert int(shown["lakeward.compaction.min-files"]) == Rules().min_files
    assert f"min-count-to-merge` ({Rule().count} " in text and f"size-bytes` ({Rule().target >> 20} MB)" in text


def test_the_page_on_changes_names_every_setting_of_astha_with_its_default() -> None:
    page = (DOCS / "how-to" / "follow-changes.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S.*?) \|", page, re.MULTILINE))
    for field in fields(AsthaConfig):
        default = getattr(AsthaConfig(), field.name)
        if isinstance(default, (int, float)):
            assert float(rows[field.name]) == default, field.name
        else:
            assert field.name in rows


def _row(each: Property[Any]) -> str:
    name = f"{each.name}COLUMN" if each.name.endswith(".") else each.name
    if each.section == ENGINES:
        return f"| `{name}` | {each.kind.what} |"
    default = "none" if each.default in (None, ()) else f"`{str(each.default).lower()}`"
    if isinstance(each.default, int) and not isinstance(each.default, bool):
        default = str(each.default)
    return f"| `{name}` | {each.shown_default or default} | {each.kind.what} | {each.meaning} |"


def test_the_reference_of_properties_says_what_is_declared() -> None:
    """A page that is out of date: its tables are the rows below."""
    page = (DOCS / "reference" / "properties.md").read_text(encoding="utf-8")
    sections = {name: body.splitlines() for name, _, body in (part.partition("\n") for part in page.split("\n## "))}
    for section in {each.section for each in PROPERTIES.values()}:
        shown = [line for line in sections[section] if line.startswith("| `")]
        assert shown == [_row(each) for each in PROPERTIES.values() if each.section == section], section


def test_no_module_names_a_property_that_is_not_declared() -> None:
    source = Path(lakeward.__path__[0])
    read = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'"((?:lakeward|write|commit|history)\.[a-z.-]*[.-][a-z.-]*[a-z])"', path.read_text())
        if not (source.parent / (name.replace(".", "/") + ".py")).exists()
        and not name.endswith((".py", ".toml", ".db"))
    }
    assert {name for name in read if properties.find(name) is None} == set()


def test_every_error_says_what_it_means_and_has_a_code_of_its_own() -> None:
    found = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.LakewardError)]
    assert [each.__name__ for each in found if not vars(each).get("__doc__")] == []
    codes = [each.code for each in found]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_that_is_made_of_the_code_is_as_the_code_is(name: str) -> None:
    """One that is not: `make reference` writes it anew."""
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == reference.page(reference.PAGES[name])


def _shown_on_reference_pages() -> list[type]:
    names = [
        name
        for page in sorted((DOCS / "reference").glob("python*.md"))
        for name in re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    found = [getattr(importlib.import_module(module), name) for module, _, name in (n.rpartition(".") for n in names)]
    return [each for each in found if inspect.isclass(each)]


def test_the_reference_of_python_leaves_out_no_public_method_for_want_of_a_docstring() -> None:
    def text(member: object) -> str | None:
        inner = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        return inner.__doc__ if inspect.isfunction(inner) else ""

    silent = [
        f"{each.__name__}.{name}"
        for each in _shown_on_reference_pages()
        for name, member in vars(each).items()
        if not name.startswith("_") and text(member) is None
    ]
    assert silent == []
