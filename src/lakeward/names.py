"""Names of namespaces and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from lakeward.errors import InvalidName

MAX_NAME_LENGTH = 255  # characters of one level; the registry's text columns have no limit, file systems and engines do
SEPARATOR = "\x1f"  # joins the levels of a namespace in the REST catalog's paths (Iceberg's default)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

TableName: TypeAlias = "str | tuple[str, ...] | TableIdentifier"
NamespaceName: TypeAlias = "str | tuple[str, ...]"


@dataclass(frozen=True, slots=True)
class TableIdentifier:
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.name))


def check_level(level: str, of: str) -> str:
    """One level of a name: not empty, not '.' or '..', no control characters (the REST separator is one), at most 255 characters.

    Raises:
        InvalidName: naming the value and the rule.
    """
    if not isinstance(level, str) or not level or level.isspace():
        raise InvalidName(f"{of} {level!r} is empty; give at least one visible character")
    if level in (".", ".."):
        raise InvalidName(f"{of} {level!r} means a folder in paths and addresses; choose a name with a letter in it")
    if len(level) > MAX_NAME_LENGTH:
        raise InvalidName(f"{of} {level[:40]!r}... has {len(level)} characters; at most {MAX_NAME_LENGTH} are allowed")
    if _UNPRINTABLE.search(level):
        raise InvalidName(f"{of} {level!r} holds a control or surrogate character; use printable characters")
    return level


def is_storable(text: str) -> bool:
    """Whether the registry can hold a text: PostgreSQL's hold neither NUL nor surrogates."""
    return _UNSTORABLE.search(text) is None


def _parts(name: str | tuple[str, ...], of: str) -> tuple[str, ...]:
    if not isinstance(name, str | tuple | list):
        raise InvalidName(f"{of} {name!r} is neither text nor a tuple of texts")
    return tuple(name.split(".")) if isinstance(name, str) else tuple(name)


def parse_namespace(name: NamespaceName) -> tuple[str, ...]:
    """'a.b' or ('a', 'b') -> ('a', 'b'). A level that holds a dot must come in a tuple.

    Raises:
        InvalidName: a level is empty, too long or holds control characters.
    """
    levels = _parts(name, "namespace")
    if not levels:
        raise InvalidName("the namespace is empty; give a name such as 'sales'")
    return tuple(check_level(level, "namespace") for level in levels)


def parse_table(name: TableName) -> TableIdentifier:
    """'ns.table', 'a.b.table' or a tuple of the same -> TableIdentifier. A part that holds a dot must come in a tuple.

    Raises:
        InvalidName: no namespace, or a part is empty, too long or holds control characters.
    """
    parts = (*name.namespace, name.name) if isinstance(name, TableIdentifier) else _parts(name, "table")
    if len(parts) < 2:
        raise InvalidName(f"table {'.'.join(map(str, parts))!r} names no namespace; write 'namespace.table'")
    return TableIdentifier(parse_namespace(parts[:-1]), check_level(parts[-1], "table"))
