"""The objects of a registry's warehouse: what is gone because its table or topic was dropped is told as that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

from lakeward.db.database import Database
from lakeward.errors import ObjectNotFound, TableNotFound, TopicNotFound
from lakeward.registry.sql import warehouses
from lakeward.storage.engine import StorageEngine

T = TypeVar("T")

_OF_A_TABLE = re.compile(r"[^/]+/[^/]+-[0-9a-f]{8}/")  # as `locations.table_location` makes them
# Methods of an engine that raise ObjectNotFound: what is read, and on a local disk a file whose folder goes while it is written.
_OF_AN_OBJECT = frozenset({"read", "open_input", "size", "modified", "checksum", "write", "open_output"})


def of_warehouse(engine: StorageEngine, database: Database, below: str) -> StorageEngine:
    """The same engine, but for an object below `below` that is gone with its table or topic.

    Its methods of one object, and `close` of what is written, raise in place of ObjectNotFound:
        TableNotFound, TopicNotFound: there is no live table or topic in whose folder the object would be.
    """
    return cast(StorageEngine, _OfWarehouse(engine, database, below))


class _OfWarehouse:
    def __init__(self, engine: StorageEngine, database: Database, below: str) -> None:
        self._engine, self._database, self._below = engine, database, below

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._engine, name)
        return self._of_an_object(attribute) if name in _OF_AN_OBJECT else attribute

    def _of_an_object(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(location: str, *arguments: Any, **options: Any) -> Any:
            result = self._told(location, lambda: method(location, *arguments, **options))
            if method.__name__ == "open_output":
                close = result.close
                result.close = lambda: self._told(location, close)
            return result

        return call

    def _told(self, location: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except ObjectNotFound as error:
            self._raise_if_dropped(location, error)
            raise

    def _raise_if_dropped(self, location: str, error: ObjectNotFound) -> None:
        if not location.startswith(self._below):
            return
        with self._database.read() as connection:
            owner = warehouses.owner_of(connection, list(_folders(location, self._below)))
        # A table's row goes with its last file.
        is_a_former_tables = owner is None and _OF_A_TABLE.match(location.removeprefix(self._below))
        if is_a_former_tables or (owner is not None and not owner.is_live):
            kind = "topic" if owner is not None and owner.kind == "topic" else "table"
            gone = TopicNotFound if kind == "topic" else TableNotFound
            raise gone(f"the {kind} that {location} belonged to has been dropped") from error


def _folders(location: str, below: str) -> Iterator[str]:
    """Each folder that an object is in, below the warehouse."""
    place = location.find("/", len(below))
    while place >= 0:
        yield location[:place]
        place = location.find("/", place + 1)
