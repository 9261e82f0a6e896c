"""What the tests have the registry execute: each statement, noted at the drivers, with the functions that it comes from.

Statements that a test executes itself are left out, and so are those of processes that it starts.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import re
import sqlite3
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import psycopg

import lakeward
from lakeward.db.pipeline import Pipeline
from lakeward.db.prepared import Prepared

_EXPLAINED = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)
# Where SQL stands.
_SQL = re.compile(r"lakeward\.(?:\w+\.sql|db(?!\.migrat))\.(?:\w+\.)*(\w+)")  # migrations read tables of their time


@dataclass
class Statement:
    database: str  # sqlite or postgresql
    text: str
    parameters: Any  # of the first time
    functions: set[str] = field(
        default_factory=set
    )  # "tables.by_id", from the one that executes it to the one that was called


_noted: dict[tuple[str, str], Statement] = {}  # by database and text
_known: dict[CodeType, str | None] = {}  # what `_name` says


def start() -> None:
    """Note from here on what this process executes."""

    class Cursor(sqlite3.Cursor):
        execute = _noting("sqlite", sqlite3.Cursor.execute)
        executemany = _noting("sqlite", sqlite3.Cursor.executemany, many=True)

    class Connection(sqlite3.Connection):
        execute = _noting("sqlite", sqlite3.Connection.execute)
        executemany = _noting("sqlite", sqlite3.Connection.executemany, many=True)

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    driver: Any = sqlite3
    driver.connect = driver.dbapi2.connect = functools.partial(sqlite3.connect, factory=Connection)
    cursor: Any = psycopg.Cursor
    cursor.execute = _noting("postgresql", cursor.execute)
    cursor.executemany = _noting("postgresql", cursor.executemany, many=True)
    send = Pipeline.send

    @functools.wraps(send)
    def send_noting(self: Pipeline, connection: Any, text: str, parameters: Any, *rest: Any, **options: Any) -> Any:
        # It is executed later, when somebody else may ask for something.
        _note("postgresql", text, parameters[0] if isinstance(parameters, list) else parameters)
        return send(self, connection, text, parameters, *rest, **options)

    pipeline: Any = Pipeline
    pipeline.send = send_noting


def _noting(database: str, execute: Any, *, many: bool = False) -> Any:
    def noted(self: Any, text: Any, /, *given: Any, **options: Any) -> Any:
        if many:
            rows, *rest = given
            given = (list(rows), *rest)
        parameters = given[0] if given else options.get("params")
        found = execute(self, text, *given, **options)  # what a driver refuses has no plan
        _note(database, text, parameters[0] if many and parameters else parameters)
        return found

    return noted


def _note(database: str, text: Any, parameters: Any) -> None:
    if not isinstance(text, str) or not _EXPLAINED.match(text) or not (functions := _functions()):
        return
    found = _noted.get((database, text))
    if found is None:
        plain = _plain(parameters)
        if _is_refused(plain):
            return
        found = _noted[database, text] = Statement(database, text, plain)
    found.functions.update(functions)


def _is_refused(value: Any) -> bool:
    """Whether a driver refuses a parameter, or one in it, as no text: what is never executed has no plan."""
    if isinstance(value, (dict, list)):
        return any(map(_is_refused, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and ("\0" in value or value != value.encode("utf-8", "replace").decode("utf-8"))


def _plain(value: Any) -> Any:
    """Parameters without classes of Lakeward's."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, str) else bytes(value) if isinstance(value, memoryview) else value


def _functions() -> list[str]:
    """From the driver outwards, up to the code that calls what has SQL. Empty where that is a test's own statement."""
    names: list[str] = []
    frame = sys._getframe(3)
    while frame is not None:
        code = frame.f_code
        if code not in _known:
            _known[code] = _name(frame.f_globals["__name__"], code.co_name)
        name = _known[code]
        if name == "":
            break
        if name is not None:
            names.append(name)
            if code.co_varnames[:1] == ("self",) and (method := _method(frame.f_locals["self"], code.co_name)):
                names.append(method)
        frame = frame.f_back  # type: ignore[assignment]
    return names


def _name(module: str, function: str) -> str | None:
    """Of a function that has SQL; empty for one that has none, None for one of a library, or that is passed by all."""
    if module == "lakeward.db.pipeline":  # sends whatever anybody executes
        return None
    if (found := _SQL.fullmatch(module)) is not None:
        return f"{found[1]}.{function}"
    return "" if module.split(".")[0] in ("lakeward", "tests") else None


def _method(owner: object, function: str) -> str | None:
    """The name of an object's method in the module that offers it as a function of its own."""
    for stem, module in modules():
        offered = getattr(module, function, None)
        if inspect.ismethod(offered) and offered.__self__ is owner:
            return f"{stem}.{function}"
    return None


def taken() -> bytes:
    """All that was noted, for another process."""
    return pickle.dumps(noted())


def add(noted: bytes) -> None:
    """What another process has noted."""
    for each in pickle.loads(noted):
        known = _noted.setdefault((each.database, each.text), each)
        known.functions |= each.functions


def noted() -> list[Statement]:
    """All of it, in an order. Statements that are executed as they are, by no function with SQL, have the name that they have in
    their module."""
    for stem, module in modules():
        for name, value in vars(module).items():
            for (database, *_), ready in value._ready.items() if isinstance(value, Prepared) else ():
                if (found := _noted.get((database, ready.text))) is not None:
                    found.functions.add(f"{stem}.{name}")
    return sorted(_noted.values(), key=lambda each: (each.database, each.text))


@functools.cache
def modules() -> list[tuple[str, ModuleType]]:
    """Those of the parts' SQL, with their names here."""
    root = Path(lakeward.__path__[0])
    paths = [path for path in sorted(root.glob("*/sql/*.py")) if path.stem != "__init__"]
    return [
        (path.stem, importlib.import_module(f"lakeward.{path.parent.parent.name}.sql.{path.stem}")) for path in paths
    ]
