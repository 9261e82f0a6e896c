"""Reference pages name what the code has."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from lakeward.config import Settings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_names_every_setting() -> None:
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert [f.name for f in fields(Settings) if f"`{f.name}`" not in text] == []
