"""Names in the REST catalog's paths, and the tokens of long lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from lakeward.errors import InvalidInput
from lakeward.names import SEPARATOR, is_storable, parse_namespace

MAX_PAGE_SIZE = 1000

_Scope = MutableMapping[str, Any]
_App = Callable[[_Scope, Any, Any], Awaitable[None]]


class EncodedPaths:
    """ASGI middleware: routes see the path as it was sent, still percent-encoded.

    Decoded before routing, as servers do it, a table named 'a/b' would look like two parts of a path.
    """

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


def decode_level(text: str) -> str:
    """One encoded part of a path -> the name. '+' is a space: Iceberg's Java client encodes as HTML forms do.

    Raises:
        InvalidInput: the bytes are not UTF-8.
    """
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput(f"{text!r} in the path is not percent-encoded UTF-8") from None


def decode_namespace(text: str) -> tuple[str, ...]:
    """An encoded namespace, its levels joined by %1F -> ('a', 'b') (Iceberg REST specification, parameter namespace).

    Raises:
        InvalidInput: the bytes are not UTF-8.
        InvalidName: a level is empty or holds control characters.
    """
    return parse_namespace(tuple(decode_level(text).split(SEPARATOR)))


def split_namespace(text: str) -> tuple[str, ...]:
    """A namespace from a query string, where the framework has decoded it already.

    Raises:
        InvalidName: as `decode_namespace`.
    """
    return parse_namespace(tuple(text.split(SEPARATOR)))


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: entries after the key `after` (None: from the start), `limit` of them (None: all)."""

    after: str | None
    limit: int | None

    def next_token(self, keys: list[str]) -> str | None:
        """The token of the page after one that has these keys; None where it was the last."""
        return encode_token(keys[-1]) if self.limit is not None and len(keys) == self.limit else None


def page_of(token: str | None, size: int | None) -> Page:
    """The page that a request asks for. One that names neither token nor size knows no pages, and gets all.

    Raises:
        InvalidInput: as `decode_token`.
    """
    if token is None and size is None:
        return Page(None, None)
    return Page(decode_token(token or ""), min(size or MAX_PAGE_SIZE, MAX_PAGE_SIZE))


def encode_token(last: str) -> str:
    """The page token that goes on after an entry with the key `last`."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def decode_token(token: str) -> str | None:
    """The key to go on after; None for the first page, whose token is empty.

    Raises:
        InvalidInput: not one of this server's tokens.
    """
    if not token:
        return None
    try:
        key = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        key = "\0"
    if not is_storable(key):
        raise InvalidInput(f"page token {token!r} is none of this server's; begin again without one")
    return key
