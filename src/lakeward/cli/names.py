"""Names of tables as they are typed: parts joined by dots, a part with a dot or a quote in it between quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lakeward.errors import InvalidInput, InvalidName

# A part: "quoted", `quoted` (the quote doubled stands for itself), or bare.
_PART = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^."`]+)')


def parse_name(text: str) -> tuple[str, ...]:
    """'sales.orders' -> ('sales', 'orders'); '"a.b".c' -> ('a.b', 'c'). Backquotes do as well; a quote is doubled within.

    Raises:
        InvalidName: a quote is not closed, or a part is empty.
    """
    parts: list[str] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            raise InvalidName(
                f"table {text!r} cannot be read at {text[at:]!r}; write namespace.table, and a part that holds a dot or a "
                'quote between quotes: \'"a.b"."c"\''
            )
        double, back, bare = match.groups()
        if double is not None:
            parts.append(double.replace('""', '"'))
        else:
            parts.append(back.replace("``", "`") if back is not None else bare)
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            raise InvalidName(f"table {text!r} has {text[at:]!r} after a closing quote; put a dot between the parts")
        at += 1


def parse_pairs(texts: Iterable[str] | None, what: str, example: str) -> dict[str, str]:
    """['a=1'] -> {'a': '1'}. Raises InvalidInput: a text without a name, or without '='."""
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals):
            raise InvalidInput(f"{what} {f'{name}{equals}{value}'!r} is not NAME=VALUE; write {example}")
    return {name: value for name, _, value in pairs}


def format_name(parts: tuple[str, ...]) -> str:
    """The text that `parse_name` reads as these parts."""
    return ".".join(part if re.fullmatch(r'[^."`]+', part) else '"' + part.replace('"', '""') + '"' for part in parts)
