"""Intents: a write is declared before its first byte, and has a folder of its own."""

from __future__ import annotations

import uuid
from datetime import timedelta

import sqlalchemy as sa

from lakeward.errors import TableNotFound
from lakeward.model.files import Intent
from lakeward.model.tables import Table
from lakeward.registry.handle import Registry
from lakeward.storage.locations import flush_prefix, write_prefix
from lakeward.store import dialect, intents, tables

_PREFIXES = {"write": write_prefix, "flush": flush_prefix}


def open_intent(registry: Registry, table: Table, kind: str = "write") -> Intent:
    """Declare a write ('write': data files, 'flush': metadata) of a table.

    Raises:
        TableNotFound: the table has been dropped.
    """
    intent_id = str(uuid.uuid4())
    with registry.database.transaction() as connection:
        now = dialect.now(connection)
        current = tables.by_id(connection, table.table_id)
        if current is None or current.dropped_at is not None:
            raise TableNotFound(f"Table does not exist: {table.identifier} (it was dropped)")
        intent = Intent(
            intent_id=intent_id,
            table_id=table.table_id,
            kind=kind,
            prefix=_PREFIXES[kind](table.location, intent_id),
            owner=registry.owner,
            lease_until=now + timedelta(seconds=registry.settings.lease_seconds),
        )
        intents.insert(connection, intent, now)
    registry.keep_intents()
    return intent


def abort(registry: Registry, intent: Intent) -> None:
    """Give a write up: its objects go first, then its row, so that a death in between leaves it to recovery.

    An intent that is gone was registered or recovered: its files are then not ours to delete.
    """
    with registry.database.read() as connection:
        if intents.load(connection, intent.intent_id) is None:
            return
    registry.engine(intent.prefix).delete_prefix(intent.prefix)
    with registry.database.transaction() as connection:
        intents.take(connection, intent.intent_id)


def is_open(connection: sa.Connection, intent: Intent) -> bool:
    return intents.load(connection, intent.intent_id) is not None
