"""What holds of the plan of every statement that the tests have the registry execute: an index finds the rows of large tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from lakeward.db.database import Database
from lakeward.db.prepared import Prepared
from lakeward.maintenance import database_upkeep
from tests.contract import big_registry, plans, statements
from tests.contract.statements import Statement
from tests.support import postgres

# An index would help nobody: they have a row or a few, or are read whole, in the order of their key.
ONE_ROW = {"registry_info", "warehouses", "subscriber_cursors", "parked_events"}
# They read all of a table: for people who ask how the registry is, to have every table's metadata in memory, and once for each
# table that is gone.
READS_ALL = {
    "overview.sizes": "tables",
    "leases.current": "leases",
    "leases.delete_of": "leases",
    "tables.CURRENT_METADATA": "table_metadata",
}
# They count all that an index of few among many holds.
READS_INDEX = {"overview.pending": "ix_table_files_pending", "overview.set_aside": "ix_table_files_set_aside"}
# They ask for all of a state that few are in, and PostgreSQL may read the index of these alone without a condition.
OF_FEW = {"dead_letters.ids": "ix_dead_letter_queue_claimed"}
# A sort reads all of what it sorts: half a partition for one offset.
IN_ORDER = {
    "segments.AT_OFFSET",
    "segments.AT_OFFSET_BY_ID",
    "segments.page",
    "segments.last_end",
    "segments.end_before",
}
# Few among many, and who finds them by an index of these alone; on SQLite without statistics too, since nobody runs ANALYZE on
# an embedded registry.
PARTIAL = {
    "ix_table_files_pending": "files.count_pending",
    "ix_table_files_set_aside": "files.set_aside",
    "ix_table_snapshots_retained": "snapshots.retained",
    "ix_retired_files_removal_pending": "retired.has_removals_pending",
    "ix_pending_writes_sweep_after": "intents.to_sweep",
    "ix_pending_writes_table_id": "intents.recover_of_table",
    "ix_pending_writes_topic_id": "intents.recover_of_topic",
    "ix_tables_dropped_at": "tables.dropped_before",
    "ix_topics_deleted_at": "topics.deleted",
    "uq_topics_warehouse_id_name": "topics.BY_NAME",
    "ix_sync_runs_running": "runs.silent",
    "ix_error_log_due": "error_log.take_due",
    "ix_dead_letter_queue_claimed": "dead_letters.claim",
    "ix_dead_letter_queue_pending": "dead_letters.claim",
    "uq_dead_letter_queue_source_record": "dead_letters.page",
}
# Functions that have SQL for one database alone.
ONLY: dict[str, set[str]] = {
    "sqlite": {"changes.after", "changes.count_after", "changes.delete_up_to", "changes.last_given"},
    "postgresql": {
        "changes.between",
        "changes.count_between",
        "changes.current_snapshot",
        "changes.delete_before_xid",
        "changes.delete_foreign",
        "changes.head",
        "changes.server_id",
        "foreign_operations.names",
        "foreign_operations.rows",
    },
}
# They count rows, of which they look at no more than is asked for, or which people ask for.
COUNTS = {"sizes.sizes", "upkeep_sqlite.has_rows"}
# Their statements are on another database, whose tables are not known.
FOREIGN = {"foreign_operations.names", "foreign_operations.rows"}


def functions_with_sql() -> set[str]:
    """Public functions that are given a connection or a database, and statements that are executed as they are."""
    found = set()
    for stem, module in statements.modules():
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            if isinstance(value, Prepared):
                found.add(f"{stem}.{name}")
            elif inspect.ismethod(value) or (inspect.isfunction(value) and value.__module__ == module.__name__):
                given = {parameter.annotation for parameter in inspect.signature(value).parameters.values()}
                if given & {"sa.Connection", "Database"}:
                    found.add(f"{stem}.{name}")
    return found


def never_run(noted: Collection[Statement]) -> list[str]:
    """Functions of which no statement is known on one of the databases."""
    faults = []
    for database, other in (("sqlite", "postgresql"), ("postgresql", "sqlite")):
        run = {name for each in noted if each.database == database for name in each.functions}
        missed = functions_with_sql() - run - ONLY[other]
        faults += [f"no test runs {name} on {database}" for name in sorted(missed)]
        faults += [f"{name} is run on {database}" for name in sorted(ONLY[other] & run)]
    return faults


def faults_of(noted: Collection[Statement], database: Database) -> list[str]:
    """What breaks a rule, of the statements that this kind of database executes."""
    faults = []
    kind = database.url.get_backend_name()
    with plans.explaining(database) as explain:
        for each in noted:
            if each.database != kind or each.functions & FOREIGN:
                continue
            who = " < ".join(sorted(each.functions))
            plan = explain(each.text, each.parameters)
            read_whole = {READS_INDEX[name] for name in each.functions & set(READS_INDEX)}
            if read_whole and plan.indexes != read_whole:
                faults.append(f"{who} reads {plan.indexes} and not {read_whole}: {_line(each.text)}")
            scans = plan.scans - ONE_ROW - {READS_ALL.get(name) for name in each.functions}
            of_few = plan.indexes and plan.indexes <= {OF_FEW.get(name) for name in each.functions}
            if scans and not (read_whole or of_few or each.functions & COUNTS):
                faults.append(f"{who} reads all of {', '.join(sorted(scans))}: {_line(each.text)}")
            wants_few = "LIMIT" in each.text.rpartition("ORDER BY")[2]
            if plan.sorts and wants_few and each.functions & IN_ORDER:
                faults.append(f"{who} sorts: {_line(each.text)}")
    return faults


def partial_unused(noted: Collection[Statement], database: Database) -> list[str]:
    """Indexes of few among many that the plan of no statement of the function above uses."""
    kind = database.url.get_backend_name()
    with plans.explaining(database) as explain:
        used = {
            (index, name)
            for each in noted
            if each.database == kind and each.functions & set(PARTIAL.values())
            for index in explain(each.text, each.parameters).indexes
            for name in each.functions
        }
    return [f"{name} does not use {index}" for index, name in PARTIAL.items() if (index, name) not in used]


def check(noted: Collection[Statement], folder: Path) -> list[str]:
    """What breaks a rule on either kind of database, with the statistics that it may have, or has not been run at all."""

    def judge(url: str) -> None:
        with closing(Database(url)) as database:  # statistics are read at the opening
            faults.extend(faults_of(noted, database))
            faults.extend(partial_unused(noted, database))

    faults = never_run(noted)
    url = f"sqlite:///{folder / 'registry.db'}"
    big_registry.make(url)
    judge(url)
    for analyze in (database_upkeep.analyze_sqlite, big_registry.analyze):
        with closing(Database(url)) as database:
            analyze(database)
        judge(url)
    with postgres.running_server() as server:
        url = server.create_database()
        big_registry.make(url)
        with closing(Database(url)) as database:
            big_registry.analyze(database)
        judge(url)
        server.drop_database(url)
    return list(dict.fromkeys(faults))


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
