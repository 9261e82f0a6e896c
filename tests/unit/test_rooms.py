"""Who may open transactions, and who may know a part's SQL: read from the syntax of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.support.source import modules

# The parts of the system: an operation of one is one transaction, opened in its room.
PARTS = {"db", "registry", "ops", "tables", "astha", "log"}
OPENERS = {"transaction", "read"}
# A read across all parts; the upkeep of the database itself; and the transaction that a caller gets for several operations.
EXCEPTIONS = {"maintenance/status.py", "maintenance/database_upkeep.py", "metadata/manager.py"}
# `registry` looks whether a table or topic lives; a table's or topic's commit takes its intent.
BELOW = {
    "registry/handle.py": {"tables"},
    "registry/intents.py": {"tables", "log"},
    "tables": {"registry"},
    "astha": {"registry"},
    "log": {"registry", "tables"},
}


def opens_a_transaction(node: ast.AST) -> bool:
    """`database.transaction()` or `database.read()`, however the database is reached."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OPENERS):
        return False
    owner = node.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") == "database"


def known_sql(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The rooms whose SQL a module imports."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        for name in names:
            _, *rooms = name.split(".")
            if len(rooms) > 1 and rooms[1] == "sql":
                yield rooms[0]


def test_transactions_are_opened_by_the_part_whose_operation_they_are() -> None:
    openers = {each.path for each in modules() if any(map(opens_a_transaction, each.nodes))}
    assert len(openers) > 20
    assert {path for path in openers if path.split("/")[0] not in PARTS} == EXCEPTIONS


def test_functions_with_sql_open_no_transaction() -> None:
    found = [each.path for each in modules() if "/sql/" in each.path and any(map(opens_a_transaction, each.nodes))]
    assert found == []


def test_a_parts_sql_is_known_to_its_own_room_alone_and_to_those_that_stand_on_it_by_declaration() -> None:
    others = {
        (each.path, room)
        for each in modules()
        for room in known_sql(each.nodes)
        if room not in {(own := each.path.split("/")[0]), *BELOW.get(each.path, ()), *BELOW.get(own, ())}
    }
    assert others == set()
