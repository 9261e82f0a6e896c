"""A process that takes one write or flush step by step, and kills itself where it is told.

Run as `python -m tests.faults.steps REGISTRY WAREHOUSE STEP`. Nothing is patched: the steps are those of lake.writes and
components.snapshotter, called one by one.
"""

from __future__ import annotations

import os
import signal
import sys

import sqlalchemy as sa

import lakeward
from lakeward.components import snapshotter
from lakeward.pipeline.arrow_write import write_arrow
from lakeward.pipeline.target import WriteTarget
from lakeward.registry import Registry, intents, registration, snapshots, tables
from lakeward.store import dialect
from lakeward.store import intents as intent_store
from tests.support.lakes import ROWS

NAME = "sales.orders"

WRITE_STEPS = ("intent", "half a file", "files", "transaction", "registered")
FLUSH_STEPS = ("flush intent", "flush objects", "flush transaction", "flushed")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_commit(registry: Registry, statement_part: str) -> None:
    """Die inside the transaction, right after a statement that begins so has been executed, before the commit."""

    def after(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(statement_part):
            die()

    sa.event.listen(registry.database.engine, "after_cursor_execute", after)


def write(registry: Registry, step: str) -> None:
    table, metadata = tables.load_with_metadata(registry, NAME)
    intent = intents.open_intent(registry, table)
    if step == "intent":
        die()
    engine = registry.engine(table.location)
    if step == "half a file":
        output = engine.open_output(intent.prefix + "00000.parquet")
        output.write(b"PAR1 and then nothing")
        output.flush()
        die()
    files = write_arrow(WriteTarget(table, metadata, intent, engine), ROWS)
    if step == "files":
        die()
    if step == "transaction":
        die_at_commit(registry, "UPDATE tables")
    registration.register(registry, table, intent, files)
    die()


def flush(registry: Registry, step: str) -> None:
    table = tables.load(registry, NAME)
    if step == "flush intent":
        intents.open_intent(registry, table, "flush")
        die()
    if step == "flush objects":
        state = snapshots.pending(registry, table.table_id)
        intent = intents.open_intent(registry, table, "flush")
        snapshotter.build(registry, state, intent)
        die()
    if step == "flush transaction":
        die_at_commit(registry, "INSERT INTO table_snapshots")
    snapshotter.flush(registry, table.table_id)
    die()


def live_writer(registry: Registry) -> None:
    """Declare a write, say so, wait to be told, and register: for longer than the lease."""
    table, metadata = tables.load_with_metadata(registry, NAME)
    intent = intents.open_intent(registry, table)
    files = write_arrow(WriteTarget(table, metadata, intent, registry.engine(table.location)), ROWS)
    print("written", flush=True)
    sys.stdin.readline()
    registration.register(registry, table, intent, files)
    with registry.database.read() as connection:
        assert intent_store.load(connection, intent.intent_id) is None
        print(dialect.now(connection).isoformat(), flush=True)


def main() -> None:
    registry_url, warehouse, step = sys.argv[1:4]
    lake = lakeward.connect(registry_url, warehouse, lease_seconds=1.0)
    if step == "live":
        live_writer(lake.registry)
        lake.close()
    else:
        (write if step in WRITE_STEPS else flush)(lake.registry, step)


if __name__ == "__main__":
    main()
