"""The commands on a real lakehouse, from an empty folder to an audit."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeward
from lakeward.components.supervisor import COMPONENTS
from lakeward.db import schema
from lakeward.ops import runs
from lakeward.ops.records.operations import SyncMode, SyncStatus
from tests.support.shell import Shell
from tests.support.waiting import until


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def orders(shell: Shell) -> Shell:
    """A lakehouse with shop.orders, two files of three rows in all, pending."""
    shell.run("create", "shop.orders", "--schema", "id long, name string")
    shell.run("append", "shop.orders", shell.parquet("a.parquet", 1, 2))
    shell.run("append", "shop.orders", shell.parquet("b.parquet", 3))
    return shell


def test_a_mistyped_lakehouse_is_not_taken_for_an_empty_one(shell: Shell) -> None:
    for words in (("tables",), ("recover",), ("topics", "list"), ("append", "a.b", shell.parquet("a.parquet", 1))):
        error = shell.json(*words, exit_code=1)["error"]
        assert error["code"] == "registry_outdated" and "there is no lakehouse at" in error["message"]
    assert [path.name for path in shell.folder.iterdir()] == ["a.parquet"]


def test_an_empty_lakehouse_has_no_tables(shell: Shell) -> None:
    shell.run("db", "upgrade")
    assert shell.json("tables") == {"tables": [], "total": 0}
    assert shell.run("tables") == "no tables\n"


def test_tables_show_what_is_registered(orders: Shell) -> None:
    [table] = orders.json("tables")["tables"]
    assert (table["table"], table["rows"], table["files"], table["format"]) == ("shop.orders", 3, 2, "parquet")
    assert table["bytes"] > 0 and table["snapshot_id"] is None
    assert "shop.orders" in orders.run("tables")
    assert orders.json("tables", "shop")["total"] == 1
    assert orders.json("tables", "elsewhere", exit_code=1)["error"]["code"] == "namespace_not_found"


def test_a_table_is_altered(orders: Shell) -> None:
    altered = orders.json("alter", "partition-by", "shop.orders", "bucket(4, id)", "name")
    assert altered["partition_by"] == ["bucket(4, id)", "name"]  # as they are given
    assert orders.json("alter", "sort-by", "shop.orders", "id desc")["sort_by"] == ["id desc nulls last"]
    assert orders.json("alter", "set", "shop.orders", "a=1", "b=x=y")["properties"] == {"a": "1", "b": "x=y"}
    assert orders.json("alter", "unset", "shop.orders", "a")["properties"] == {"b": "x=y"}
    assert orders.json("alter", "partition-by", "shop.orders")["partition_by"] == []
    assert "partition by  bucket(4, id)\n" in orders.run("alter", "partition-by", "shop.orders", "bucket(4, id)")
    assert orders.json("alter", "set", "shop.orders", "a", exit_code=1)["error"]["code"] == "invalid_input"


def test_manifests_are_listed_and_merged(orders: Shell) -> None:
    assert orders.json("manifests", "list", "shop.orders")["manifests"] == []
    orders.run("alter", "set", "shop.orders", "commit.manifest.min-count-to-merge=2")
    orders.json("snapshots", "create", "shop.orders")
    assert orders.json("manifests", "merge", "shop.orders")["replaced"] == 0
    orders.run("append", "shop.orders", orders.parquet("c.parquet", 4))
    orders.json("snapshots", "create", "shop.orders")
    assert [m["files"] for m in orders.json("manifests", "list", "shop.orders")["manifests"]] == [2, 1]
    assert orders.json("manifests", "merge", "shop.orders")["replaced"] == 2
    [merged] = orders.json("manifests", "list", "shop.orders")["manifests"]
    assert (merged["files"], merged["rows"], merged["content"]) == (3, 4, "data")
    assert "data" in orders.run("manifests", "list", "shop.orders")


def test_files_are_pending_until_they_are_flushed(orders: Shell) -> None:
    assert [file["rows"] for file in orders.json("files", "shop.orders", "--pending")["files"]] == [2, 1]
    orders.json("snapshots", "create", "shop.orders")
    assert orders.json("files", "shop.orders", "--pending")["files"] == []
    [snapshot] = orders.json("snapshots", "list", "shop.orders")["snapshots"]
    assert (snapshot["added_files"], snapshot["added_rows"], snapshot["trigger"]) == (2, 3, "manual")
    assert {file["snapshot_id"] for file in orders.json("files", "shop.orders")["files"]} == {snapshot["snapshot_id"]}


def test_a_snapshot_is_named_gone_back_to_and_let_go_of(orders: Shell) -> None:
    first = orders.json("snapshots", "create", "shop.orders")["snapshot_id"]
    tagged = orders.json("snapshots", "tag", "shop.orders", "two-files", "--max-age", "30d")
    assert (tagged["snapshot_id"], tagged["max_ref_age_ms"]) == (first, 30 * 86_400_000)
    orders.run("append", "shop.orders", orders.parquet("c.parquet", 4))
    back = orders.json("snapshots", "rollback", "shop.orders", "two-files")
    assert (back["snapshot_id"], back["files_retired"]) == (first, 1)
    assert orders.json("tables")["tables"][0]["rows"] == 3
    branch = orders.json("snapshots", "branch", "shop.orders", "b", "--snapshot", str(back["previous_snapshot_id"]))
    assert [ref["name"] for ref in orders.json("snapshots", "refs", "shop.orders")["refs"]] == [
        "b",
        "main",
        "two-files",
    ]
    orders.run("snapshots", "drop", "shop.orders", branch["name"])
    shown = orders.json("snapshots", "expire", "shop.orders", "--older-than", "0s", "--dry-run")
    assert shown["snapshots"] == [back["previous_snapshot_id"]]
    assert orders.json("snapshots", "list", "shop.orders")["total"] == 2
    assert "expired" in orders.run("snapshots", "expire", "shop.orders", "--older-than", "0s")
    assert orders.json("snapshots", "list", "shop.orders")["total"] == 1
    assert orders.json("snapshots", "list", "shop.orders", "--expired")["snapshots"][0]["expired_at"] is not None
    gone = orders.json("snapshots", "rollback", "shop.orders", str(back["previous_snapshot_id"]), exit_code=1)
    assert gone["error"]["code"] == "snapshot_not_found"


def test_an_age_or_time_that_cannot_be_read_is_named(orders: Shell) -> None:
    for text, why in (("7 days", "7 days"), ("2026-01-02T03:04:05", "no zone"), ("-1d", "-1d")):
        error = orders.json("snapshots", "expire", "shop.orders", f"--older-than={text}", exit_code=1)["error"]
        assert error["code"] == "invalid_input" and why in error["message"]


def test_an_earlier_version_of_the_metadata_comes_back(orders: Shell) -> None:
    orders.run("alter", "set", "shop.orders", "owner=me")
    orders.run("alter", "rollback", "shop.orders", "1")
    assert (
        orders.json("alter", "rollback", "shop.orders", "9", exit_code=1)["error"]["code"]
        == "metadata_version_not_found"
    )


def test_a_limit_cuts_the_list_and_says_so(orders: Shell) -> None:
    found = orders.json("files", "shop.orders", "--limit", "1")
    assert len(found["files"]) == 1 and found["total"] == 2
    assert "1 of 2" in orders.run("files", "shop.orders", "--limit", "1")
    assert len(orders.json("files", "shop.orders", "--limit", "0")["files"]) == 2


def test_the_same_batch_is_appended_once(orders: Shell) -> None:
    arguments = ("append", "shop.orders", orders.parquet("c.parquet", 4), "--batch", "stream", "1")
    first, again = orders.json(*arguments), orders.json(*arguments)
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["files"] == again["files"]
    assert orders.json("tables")["tables"][0]["rows"] == 4


def test_sync_returns_with_the_snapshot(orders: Shell) -> None:
    done = orders.json("append", "shop.orders", orders.parquet("c.parquet", 4), "--sync")
    assert done["snapshot_id"] is not None
    assert done["snapshot_id"] == orders.json("tables")["tables"][0]["snapshot_id"]


def test_a_file_that_does_not_fit_is_refused_and_nothing_is_appended(orders: Shell) -> None:
    odd = orders.folder / "odd.parquet"
    pq.write_table(pa.table({"id": ["text"], "name": ["x"]}), odd)
    failed = orders.json("append", "shop.orders", orders.parquet("c.parquet", 4), str(odd), exit_code=1)
    assert failed["error"]["code"] == "file_refused"
    assert orders.json("tables")["tables"][0]["rows"] == 3


def test_a_table_that_is_not_there_is_named(shell: Shell) -> None:
    shell.run("db", "upgrade")
    for words in (("files",), ("snapshots", "list"), ("snapshots", "create"), ("snapshots", "expire"), ("audit",)):
        failed = shell.json(*words, "shop.nothing", exit_code=1)
        assert failed["error"]["code"] == "table_not_found" and "shop.nothing" in failed["error"]["message"]


def test_names_with_dots_are_typed_between_quotes(shell: Shell) -> None:
    made = shell.json("create", '"a.b"."c d"', "--schema", "id long")
    assert made["table"] == '"a.b".c d'
    assert shell.json("files", made["table"])["total"] == 0


def test_an_audit_passes_and_finds_a_file_that_is_gone(orders: Shell) -> None:
    assert orders.json("audit", "shop.orders", "--checksums")["ok"] is True
    Path(orders.json("files", "shop.orders")["files"][0]["path"].removeprefix("file://")).unlink()
    found = orders.json("audit", "shop.orders", exit_code=1)
    assert found["ok"] is False and "missing" in {finding["kind"] for finding in found["findings"]}
    assert "missing" in orders.run("audit", "shop.orders", exit_code=1)


def test_footers_are_stored_again(orders: Shell) -> None:
    assert orders.json("footers", "rebuild", "shop.orders")["footers"] == 2


def test_recover_and_clean_have_nothing_to_do_in_an_orderly_lakehouse(orders: Shell) -> None:
    for command in ("recover", "clean"):
        found = orders.json(command)
        assert all(not value for value in found.values())
    assert orders.json("tables")["tables"][0]["files"] == 2


@contextmanager
def served(orders: Shell, *options: str) -> Iterator[str]:
    """The URL of a server of one's own process."""
    command = [sys.executable, "-m", "lakeward.cli.main", "serve", "--port", "0", *options, *orders.options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield next(word for word in server.stdout.readline().split() if word.startswith("http://"))
        finally:
            server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


def test_serve_answers_until_it_is_interrupted(orders: Shell) -> None:
    with served(orders, "--token", "word") as url:
        with urllib.request.urlopen(f"{url}/health", timeout=20) as answer:
            assert answer.status == 200
        request = urllib.request.Request(
            f"{url}/v1/namespaces/shop/tables/orders", headers={"Authorization": "Bearer word"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["metadata"]["current-snapshot-id"] > 0


def test_serve_runs_the_components_and_another_command_sees_what_they_do(orders: Shell) -> None:
    orders.run("alter", "set", "shop.orders", "lakeward.snapshot.every-files=3")
    with served(orders):
        orders.run("append", "shop.orders", orders.parquet("c.parquet", 4))  # the third file that waits
        until(lambda: orders.json("snapshots", "list", "shop.orders")["total"] == 1, seconds=60)
        until(lambda: {row["status"] for row in orders.json("astha", "status")["components"]} == {"active"}, seconds=60)
        shown = {row["name"]: row for row in orders.json("astha", "status")["components"]}
    assert set(shown) == set(COMPONENTS)
    assert shown["snapshotter"]["delivered"] >= 1 and shown["snapshotter"]["parked"] == 0
    assert "snapshotter" in orders.run("astha", "status")
    assert {row["astha"] for row in shown.values()} == {"lakeward"} and all("seen_at" in row for row in shown.values())
    error = orders.json("serve", "--without", "nobody", exit_code=1)["error"]
    assert error["code"] == "invalid_input" and "nobody" in error["message"]


def test_serve_gives_up_silent_runs_and_an_append_of_files_is_one_that_was_completed(orders: Shell) -> None:
    listed = orders.json("runs", "list")["runs"]
    assert [(run["status"], run["records_inserted"]) for run in listed] == [("completed", 1), ("completed", 2)]
    with lakeward.connect(orders.folder / "registry.db", orders.folder / "warehouse") as lake:
        with lake.registry.database.transaction() as connection:
            silent = runs.insert_running(connection, runs.described("shop", SyncMode.STREAM), heartbeats=True)
            change = schema.sync_runs.update().where(schema.sync_runs.c.id == silent.id)
            connection.execute(change.values(last_seen_at=silent.started_at - timedelta(hours=1)))
        with served(orders):
            until(lambda: runs.get(lake.registry, silent.id).status == SyncStatus.FAILED, seconds=60)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sql_reads_what_is_pending(orders: Shell) -> None:
    """In a process of its own: the command ends its Spark, and this process may have one."""
    statement = "SELECT count(*) AS n, max(name) AS last FROM shop.orders"
    command = [sys.executable, "-m", "lakeward.cli.main", "sql", statement, "--json", *orders.options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"columns": ["n", "last"], "rows": [{"n": 3, "last": "n3"}], "truncated": False}
    assert done.stderr == ""
    plain = [*command[:4], "SELECT id, name FROM shop.orders WHERE id > 1", *orders.options]
    shown = subprocess.run(plain, capture_output=True, text=True, timeout=280)
    told = re.fullmatch(r"Spark took [\d.]+ s to start; without it: lakeward (scan .*)\n", shown.stderr)
    assert told, shown.stderr
    scanned = [json.loads(line) for line in orders.run(*shlex.split(told[1])).splitlines()]
    assert scanned == [{"id": 2, "name": "n2"}, {"id": 3, "name": "n3"}]
    assert all(f"{row['id']}" in shown.stdout and row["name"] in shown.stdout for row in scanned)
    assert "n1" not in shown.stdout
    command[4] = "SELECT nothing FROM shop.orders"
    failed = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert failed.returncode == 1 and "UNRESOLVED_COLUMN" in json.loads(failed.stdout)["error"]["message"]
    assert len(failed.stderr.splitlines()) == 1  # no stack, neither Python's nor Java's
