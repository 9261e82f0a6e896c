"""Runs, errors, dead letters, schemas and positions on the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import lakeward
from lakeward.metadata import ErrorType, MetadataManager, OperationType, SchemaDefinition, SyncMode
from lakeward.ops import retention
from tests.support.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def metadata(shell: Shell) -> Iterator[MetadataManager]:
    """Of a lakehouse with a run, its error and dead letter, two versions of a schema and a position."""
    with lakeward.connect(shell.folder / "registry.db", shell.folder / "warehouse") as lake:
        manager = MetadataManager(lake)
        run = manager.start_sync_run("shop", SyncMode.STREAM, source_info={"uri": "postgres://a:b@h/d"})
        manager.log_error("shop", ErrorType.VALIDATION, "no amount", "orders", run.id, "VAL_001", record_data={"id": 1})
        for number in range(3):
            record = {"id": number, "amount": Decimal("1.10"), "rate": math.nan}
            manager.add_to_dead_letter_queue("shop", "orders", OperationType.INSERT, record, run.id)
        columns = [{"name": "id", "type": "bigint"}]
        manager.register_schema("shop", "orders", SchemaDefinition(columns))
        manager.register_schema("shop", "orders", SchemaDefinition([*columns, {"name": "amount", "type": "text"}]))
        manager.update_stream_position("shop", {"lsn": "0/16B3748"}, sync_run_id=run.id)
        yield manager


def test_runs_of_a_table_are_listed_with_it_and_their_kind(shell: Shell) -> None:
    for table in ("shop.orders", "shop.lines"):
        shell.run("create", table, "--schema", "id long, name string")
        shell.run("append", table, shell.parquet("a.parquet", 1))
    listed = shell.json("runs", "list")["runs"]
    assert {(run["table"], run["kind"]) for run in listed} >= {("shop.orders", "files"), ("shop.lines", "files")}
    for named in ("shop.orders", "orders"):
        [run] = shell.json("runs", "list", "--table", named)["runs"]
        assert (run["table"], run["kind"], run["records_inserted"]) == ("shop.orders", "files", 1)
    assert "shop.orders" in shell.run("runs", "list", "--table", "orders") and "files" in shell.run("runs", "list")
    assert shell.json("runs", "list", "--table", "order")["runs"] == []


def test_runs_are_listed_shown_and_ended(shell: Shell, metadata: MetadataManager) -> None:
    [run] = shell.json("runs", "list", "--schema", "shop", "--status", "running", "--since", "1h")["runs"]
    assert (run["schema_name"], run["source_info"]) == ("shop", {"uri": "postgres://***@h/d"})
    assert "running" in shell.run("runs", "list")
    assert shell.json("runs", "show", str(run["id"])) == run
    assert shell.json("runs", "recover")["runs"] == []
    ended = shell.json("runs", "end", str(run["id"]), "--status", "cancelled", "--message", "machine gone")
    assert (ended["status"], ended["error_message"]) == ("cancelled", "machine gone")
    again = shell.json("runs", "end", str(run["id"]), exit_code=1)
    assert again["error"]["code"] == "status_conflict"
    assert shell.json("runs", "show", "99", exit_code=1)["error"]["code"] == "sync_run_not_found"
    assert shell.json("runs", "list", "--status", "lost", exit_code=1)["error"]["code"] == "invalid_input"
    assert shell.json("runs", "list", "--since", "soon", exit_code=1)["error"]["code"] == "invalid_input"


def test_statistics_and_cleaning(shell: Shell, metadata: MetadataManager) -> None:
    stats = shell.json("runs", "stats")
    assert (stats["sync_runs"]["total_runs"], stats["dead_letters"]["pending"]) == (1, 3)
    assert stats["positions"][0]["position"] == {"lsn": "0/16B3748"}
    shown = shell.run("runs", "stats", "--schema", "shop", "--hours", "1")
    assert "total runs" in shown and "0/16B3748" in shown
    assert shell.json("runs", "clean")["sync_runs"] == 0


def test_errors_are_listed_shown_resolved_and_ignored(shell: Shell, metadata: MetadataManager) -> None:
    other = metadata.log_error("shop", ErrorType.TIMEOUT, "late")
    errors = shell.json("errors", "list", "--type", "validation")["errors"]
    assert [each["error_code"] for each in errors] == ["VAL_001"]
    assert "no amount" in shell.run("errors", "show", str(errors[0]["id"]))
    assert shell.json("errors", "resolve", str(errors[0]["id"]), "--note", "fixed")["resolution"] == "fixed"
    assert shell.json("errors", "ignore", str(other.id))["status"] == "ignored"
    assert shell.json("errors", "ignore", str(other.id), exit_code=1)["error"]["code"] == "status_conflict"
    assert shell.json("errors", "list", "--status", "open")["errors"] == []
    assert {each["error_type"] for each in shell.json("errors", "trends")["trends"]} == {"validation", "timeout"}
    assert "timeout" in shell.run("errors", "trends")


def test_many_errors_are_resolved_or_ignored_by_what_they_have_in_common(
    shell: Shell, metadata: MetadataManager
) -> None:
    for table in ("a", "a", "b", "b"):
        metadata.log_error("bulk", ErrorType.TIMEOUT, "late", table, error_code="T1")
    ids = [str(each["id"]) for each in shell.json("errors", "list", "--schema", "bulk", "--table", "b")["errors"]]
    assert shell.json("errors", "ignore", *ids, "--note", "known") == {"ignored": 2}
    assert shell.json("errors", "resolve", "--schema", "bulk", "--before", "1h") == {"resolved": 0}
    assert shell.json("errors", "resolve", "--table", "a", "--code", "T1", "--note", "fixed") == {"resolved": 2}
    assert shell.json("errors", "list", "--schema", "bulk", "--status", "open")["errors"] == []
    for words in ([], ["1", "--all"], ["--type", "odd"], ["--before", "soon"]):
        assert shell.json("errors", "resolve", *words, exit_code=1)["error"]["code"] == "invalid_input"
    assert shell.json("errors", "resolve", "--all")["resolved"] == 1


def test_dead_letters_are_shown_whole_and_acted_on(shell: Shell, metadata: MetadataManager) -> None:
    found = shell.json("dlq", "list", "--table", "orders", "--limit", "2")
    assert (len(found["dead_letters"]), found["total"]) == (2, 3)
    letter = found["dead_letters"][0]
    assert letter["record_data"] == {"id": 2, "amount": {"$decimal": "1.10"}, "rate": {"$float": "nan"}}
    assert '{"$decimal": "1.10"}' in shell.run("dlq", "show", str(letter["id"]))
    assert shell.json("dlq", "resolve", str(letter["id"]), "--note", "by hand") == {"resolved": 1}
    assert shell.json("dlq", "counts") == {"pending": 2, "processing": 0, "resolved": 1, "discarded": 0}
    metadata.claim_dead_letters("w", 1)
    assert shell.json("dlq", "discard", "--schema", "shop") == {"discarded": 1}
    assert shell.json("dlq", "release", "--all") == {"released": 1}
    assert shell.json("dlq", "requeue", "--all", "--status", "discarded", exit_code=0) == {"requeued": 1}
    assert shell.json("dlq", "counts", "--schema", "shop")["pending"] == 2
    for words in (["resolve"], ["discard", "1", "--all"], ["requeue", "1", "--schema", "shop"]):
        assert shell.json("dlq", *words, exit_code=1)["error"]["code"] == "invalid_input"
    assert shell.json("dlq", "resolve", "99", exit_code=1)["error"]["code"] == "dead_letter_not_found"
    assert "no dead letters" in shell.run("dlq", "list", "--schema", "other")


def test_schemas_are_listed_shown_and_compared(shell: Shell, metadata: MetadataManager) -> None:
    assert shell.json("schemas", "list")["schemas"] == [{"schema_name": "shop", "table_name": "orders", "version": 2}]
    versions = shell.json("schemas", "versions", "shop", "orders")["versions"]
    assert [each["evolution_type"] for each in versions] == ["create", "add_column"]
    assert "add_column amount" in shell.run("schemas", "versions", "shop", "orders")
    assert "bigint" in shell.run("schemas", "show", "shop", "orders", "--version", "1")
    assert len(shell.json("schemas", "show", "shop", "orders")["schema_definition"]["columns"]) == 2
    compared = shell.json("schemas", "diff", "shop", "orders", "1", "2")
    assert (compared["full"], compared["changes"][0]["name"]) == (True, "amount")
    assert "backward" in shell.run("schemas", "diff", "shop", "orders", "2", "1")
    missing = shell.json("schemas", "show", "shop", "none", exit_code=1)
    assert missing["error"]["code"] == "schema_version_not_found"


def test_positions_are_listed_set_and_deleted(shell: Shell, metadata: MetadataManager) -> None:
    assert "0/16B3748" in shell.run("positions", "list")
    new, old = json.dumps({"lsn": "0/2", "token": {"$bytes": "AP8="}}), json.dumps({"lsn": "0/16B3748"})
    wrong = shell.json("positions", "set", "shop", new, "--expected", new, exit_code=1)
    assert wrong["error"]["code"] == "position_conflict"
    assert shell.json("positions", "set", "shop", new, "--expected", old)["position_data"] == json.loads(new)
    assert metadata.get_stream_position("shop") == {"lsn": "0/2", "token": b"\x00\xff"}
    assert shell.json("positions", "show", "shop")["position_data"]["lsn"] == "0/2"
    for words in (
        ["set", "shop", "0/2"],
        ["set", "shop", "[1]"],
        ["show", "x"],
        ["delete", "shop"],
        ["show", "shop", "--type", "x"],
    ):
        assert shell.json("positions", *words, exit_code=1)["error"]["code"] == "invalid_input"
    assert shell.json("positions", "delete", "shop", "--yes") == {"deleted": True}
    assert shell.json("positions", "list")["positions"] == []


def test_the_retention_is_shown_raised_by_managers_and_lowered_by_the_command_alone(
    shell: Shell, metadata: MetadataManager
) -> None:
    assert shell.json("db", "retention") == {"retention_days": 0}
    retention.keep_at_least(metadata.registry, 365)
    retention.keep_at_least(metadata.registry, 30)
    assert shell.json("db", "retention") == {"retention_days": 365}
    assert shell.json("db", "retention", "--days", "30") == {"retention_days": 30}
    assert shell.json("db", "retention", "--forever") == {"retention_days": None}
    for wrong in (("--days", "0"), ("--days", "3", "--forever")):
        shell.run("db", "retention", *wrong, exit_code=1)
    assert shell.json("db", "retention") == {"retention_days": None}
