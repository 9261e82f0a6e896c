"""The source of Lakeward as tests read it, parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import lakeward

SOURCE = Path(lakeward.__path__[0])
DOCS = SOURCE.parents[1] / "docs"


class Module(NamedTuple):
    path: str  # below SOURCE
    text: str
    tree: ast.Module
    nodes: list[ast.AST]  # all of the tree's

    @property
    def name(self) -> str:
        """As it is imported."""
        return f"lakeward.{self.path.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")


@cache
def modules() -> list[Module]:
    """Every module, by its path."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found.append(Module(path.relative_to(SOURCE).as_posix(), text, tree, list(ast.walk(tree))))
    return found
