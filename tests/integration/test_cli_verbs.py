"""Everyday commands on one table and on the whole lakehouse, none of which starts a JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import lakeward
from lakeward.astha import Astha, load_status
from lakeward.components.schema_manager import SchemaManager
from lakeward.db import schema
from lakeward.metadata import ErrorType, MetadataManager
from lakeward.registry import Registry
from tests.support.shell import Shell
from tests.support.terminal import shown_in_terminal
from tests.support.waiting import until

NAME = "shop.orders"
LONG_AGO = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def orders(shell: Shell) -> Shell:
    """A lakehouse with shop.orders, of three rows, pending."""
    shell.run("create", NAME, "--schema", "id long not null, name string", "--partition-by", "bucket(4, id)")
    shell.run("append", NAME, shell.parquet("a.parquet", 1, 2, 3))
    return shell


@pytest.fixture
def lake(orders: Shell) -> Iterator[lakeward.Lake]:
    with lakeward.connect(orders.folder / "registry.db", orders.folder / "warehouse") as opened:
        yield opened


def test_a_table_is_described(orders: Shell) -> None:
    orders.run("alter", "set", NAME, "owner=me")
    orders.run("alter", "sort-by", NAME, "name desc")
    found = orders.json("describe", NAME)
    assert (found["table"], found["rows"], found["pending_files"], found["snapshot_id"]) == (
        NAME,
        3,
        found["files"],
        None,
    )
    assert found["partition_by"] == ["bucket(4, id)"] and found["sort_by"] == ["name desc nulls last"]
    assert found["properties"] == {"owner": "me"}
    assert [(c["column"], c["type"], c["required"]) for c in found["columns"]] == [
        ("id", "long", True),
        ("name", "string", False),
    ]
    shown = orders.run("describe", NAME)
    assert "bucket(4, id)" in shown and "name    string  no" in shown
    assert orders.json("describe", "shop.none", exit_code=1)["error"]["code"] == "table_not_found"


def test_columns_are_added_renamed_widened_moved_and_dropped(orders: Shell) -> None:
    def names(*words: str) -> list[str]:
        return [each["column"] for each in orders.json("alter", *words)["columns"]]

    assert names("add-column", NAME, "place", "struct<city: string, zip: int>", "--doc", "where") == [
        "id",
        "name",
        "place",
    ]
    names("add-column", NAME, "place.street", "string")
    names("widen-column", NAME, "place.zip", "long")
    names("rename-column", NAME, "name", "odd.name")
    assert names("move-column", NAME, "place", "--first") == ["place", "id", "odd.name"]
    assert names("move-column", NAME, '"odd.name"', "--before", "id") == ["place", "odd.name", "id"]
    [place, *_] = orders.json("describe", NAME)["columns"]
    assert (place["type"], place["doc"]) == ("struct<city: string, zip: long, street: string>", "where")
    assert names("drop-column", NAME, "place") == ["odd.name", "id"]
    for words in (("move-column", NAME, "id"), ("move-column", NAME, "id", "--first", "--after", "id")):
        assert orders.json("alter", *words, exit_code=1)["error"]["code"] == "invalid_input"
    versions = orders.json("versions", NAME)
    assert [each["change"] for each in versions["versions"]][:2] == ["drop_column", "move_column"]
    assert versions["versions"][-1]["columns"] == ["id", "name"] and versions["total"] == 8
    assert "drop_column" in orders.run("versions", NAME, "--limit", "1")


def test_rows_are_shown_and_written_as_lines_that_can_be_appended(orders: Shell) -> None:
    assert sorted(row["id"] for row in orders.json("head", NAME)["rows"]) == [1, 2, 3]
    assert len(orders.json("head", NAME, "-n", "2")["rows"]) == 2
    assert "n2" in orders.run("head", NAME, "--filter", "id = 2", "--columns", "name")
    lines = orders.run("scan", NAME, "--filter", "id > 1").splitlines()
    assert sorted(json.loads(line)["name"] for line in lines) == ["n2", "n3"]
    assert orders.json("scan", NAME, "--columns", "id", "--limit", "1")["total"] == 1
    file = orders.folder / "again.jsonl"
    file.write_text("\n".join(lines))
    orders.run("append", NAME, str(file))
    assert orders.json("scan", NAME)["total"] == 5
    assert orders.json("head", NAME, "--columns", "nothing", exit_code=1)["error"]["code"] == "column_not_found"


def test_standard_input_is_appended(orders: Shell) -> None:
    lines = orders.run("scan", NAME)
    assert orders.json("append", NAME, "-", lines=lines)["rows"] == 3
    assert orders.json("append", NAME, "-", "--format", "csv", lines="id,name\n7,seven\n")["rows"] == 1
    assert orders.json("append", NAME, "-", lines='[{"id": 8}, {"id": 9}]')["rows"] == 2
    assert orders.json("scan", NAME, "--filter", "id >= 7")["total"] == 3
    for words in (("-", "-"), ("-", "--format", "xml")):
        assert orders.json("append", NAME, *words, lines="", exit_code=1)["error"]["code"] == "invalid_input"


def test_a_snapshot_is_scanned(orders: Shell) -> None:
    first = orders.json("snapshots", "create", NAME)["snapshot_id"]
    orders.run("snapshots", "tag", NAME, "then")
    orders.run("append", NAME, orders.parquet("b.parquet", 4))
    assert orders.json("scan", NAME)["total"] == 4
    for snapshot in (str(first), "then", "main"):
        assert orders.json("scan", NAME, "--snapshot", snapshot)["total"] == 3
        assert len(orders.json("head", NAME, "--snapshot", snapshot)["rows"]) == 3
    assert orders.json("scan", NAME, "--snapshot", "5", exit_code=1)["error"]["code"] == "snapshot_not_found"


def test_a_table_is_renamed_and_dropped_once_that_is_agreed_to(orders: Shell) -> None:
    uuid = orders.json("describe", NAME)["uuid"]
    assert orders.json("rename", NAME, "shop.sales")["uuid"] == uuid
    refused = orders.json("drop", "shop.sales", exit_code=1)["error"]
    assert refused["code"] == "invalid_input" and "--yes" in refused["message"]
    assert orders.json("drop", "shop.sales", "--yes") == {"dropped": "shop.sales", "rows": 3, "purged": False}
    assert orders.json("tables")["total"] == 0
    orders.run("create", NAME, "--schema", "id long")
    assert orders.json("drop", NAME, "--purge", "--yes")["purged"] is True


def test_a_table_that_exists_is_made_if_it_does_not(orders: Shell) -> None:
    assert orders.json("create", NAME, "--schema", "other int", exit_code=1)["error"]["code"] == "table_already_exists"
    found = orders.json("create", NAME, "--schema", "other int", "--if-not-exists")
    assert found["columns"] == {"id": "long not null", "name": "string"} and found["partition_by"] == ["bucket(4, id)"]


def test_the_snapshots_of_all_tables_expire_at_once(orders: Shell) -> None:
    orders.run("create", "shop.lines", "--schema", "id long, name string")
    for name in (NAME, "shop.lines"):
        for number in (5, 6):
            orders.run("append", name, orders.parquet(f"{number}.parquet", number))
            orders.run("snapshots", "create", name)
    planned = orders.json("snapshots", "expire", "--older-than", "0s", "--dry-run")["tables"]
    assert {each["table"]: (each["expired"], each["error"]) for each in planned} == {
        NAME: (1, None),
        "shop.lines": (1, None),
    }
    assert orders.json("snapshots", "list", NAME)["total"] == 2
    assert "shop.lines" in orders.run("snapshots", "expire", "--older-than", "0s")
    assert (
        orders.json("snapshots", "list", NAME)["total"] == orders.json("snapshots", "list", "shop.lines")["total"] == 1
    )


def test_what_a_clean_up_would_delete_is_said_and_stays(orders: Shell, lake: lakeward.Lake) -> None:
    lake.flush(NAME)
    partitions = [{"id_bucket": number} for number in range(4)]
    assert lake.retire_partitions(NAME, partitions) > 0
    lake.flush(NAME)
    with lake.registry.database.transaction() as connection:
        connection.execute(schema.retired_files.update().values(expires_at=LONG_AGO))
    lake.expire_snapshots(NAME, -timedelta(minutes=1), keep=1)
    found = orders.json("clean", "--dry-run")
    assert found["dry_run"] is True and found["files"] > 0 and found["bytes"] > 0
    assert orders.json("clean", "--dry-run") == found and "files to go" in orders.run("clean", "--dry-run")
    cleaned = orders.json("clean")
    assert (cleaned["files"], cleaned["bytes"]) == (found["files"], found["bytes"])


# status -----------------------------------------------------------------------------------------------------------------
def test_a_lakehouse_where_nothing_is_wrong_says_so(orders: Shell) -> None:
    found = orders.json("status")
    assert found["ok"] is True and found["problems"] == [] and found["components"] == []
    assert (found["tables"], found["rows"], found["pending_tables"]) == (1, 3, 1)
    assert found["pending_files"] > 0 and found["pending_since"] is not None
    assert "nothing is wrong" in orders.run("status")


def test_components_that_nobody_runs_are_dead_whatever_they_said_last(orders: Shell, lake: lakeward.Lake) -> None:
    astha = Astha(lake.registry)
    SchemaManager(lake.registry).register_with_astha(astha)
    with astha:
        until(lambda: [each["status"] for each in load_status(lake.registry)] == ["active"])
        assert orders.json("status")["ok"] is True
    found = orders.json("status", exit_code=1)
    assert [each["status"] for each in found["components"]] == ["dead"]
    [problem] = found["problems"]
    assert "no process runs schema_manager" in problem and "lakeward serve" in problem
    assert problem in orders.run("status", exit_code=1)
    assert orders.json("astha", "status")["components"][0]["status"] == "dead"


def test_what_failed_is_a_problem_with_its_way_out(orders: Shell, lake: lakeward.Lake) -> None:
    manager = MetadataManager(lake.registry)
    error = manager.log_error("shop", ErrorType.DATA, "bad")
    _leave_a_dead_write(lake.registry)
    found = orders.json("status", exit_code=1)
    assert (found["open_errors"], found["dead_writes"], found["ok"]) == (1, 1, False)
    assert [word in " ".join(found["problems"]) for word in ("lakeward errors list", "lakeward recover")] == [
        True,
        True,
    ]
    orders.run("recover")
    orders.run("errors", "resolve", str(error.id))
    assert orders.json("status")["problems"] == []


def _leave_a_dead_write(registry: Registry) -> None:
    """A process declares a write and is killed; its lease has run out since."""
    program = (
        "import os, signal, sys, lakeward; from lakeward.registry import intents\n"
        "lake = lakeward.connect(sys.argv[1], sys.argv[2])\n"
        f"with intents.declared(lake.registry, lake.table({NAME!r}), 'write'): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = Path(str(registry.database.url.database)).parent
    command = [sys.executable, "-c", program, str(folder / "registry.db"), str(folder / "warehouse")]
    assert subprocess.run(command, env=dict(os.environ), timeout=60).returncode == -signal.SIGKILL
    with registry.database.transaction() as connection:
        connection.execute(schema.pending_writes.update().values(lease_until=LONG_AGO))


def test_at_a_terminal_of_80_columns_ids_are_whole_and_no_row_is_broken(orders: Shell) -> None:
    snapshot = orders.json("snapshots", "create", NAME)["snapshot_id"]
    command = [sys.executable, "-m", "lakeward.cli.main"]
    for words in (("files", NAME), ("runs", "list")):
        shown, code = shown_in_terminal([*command, *words, *orders.options], 80)
        assert code == 0
        rows = [line for line in shown.splitlines() if not line.startswith("not shown")]
        assert max(map(len, rows)) <= 80, words
        assert words[0] != "files" or str(snapshot) in shown


def test_the_shell_completes_commands() -> None:
    environment = {**os.environ, "_LAKEWARD_COMPLETE": "complete_bash", "COMP_WORDS": "lakeward de", "COMP_CWORD": "1"}
    program = "import sys; sys.argv[0] = 'lakeward'; from lakeward.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["demo", "describe"]
