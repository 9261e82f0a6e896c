"""Topics and groups on the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.shell import Shell

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """With topic orders: three partitions, kept for seven days."""
    shell = Shell(tmp_path)
    shell.run("topics", "create", "orders", "--partitions", "3", "--retention", "7d", "--set", "cleanup.policy=delete")
    return shell


def lines(count: int) -> str:
    records = [
        {"key": str(i), "value": {"n": i}, "timestamp": (TIME + timedelta(minutes=i)).isoformat()} for i in range(count)
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def test_topics_are_made_listed_shown_changed_and_deleted(shell: Shell) -> None:
    [topic] = shell.json("topics", "list")["topics"]
    assert (topic["topic"], topic["partitions"], topic["retention_ms"]) == ("orders", 3, 604_800_000)
    assert topic["config"] == {"cleanup.policy": "delete"}
    assert "7d" in shell.run("topics", "list")
    changed = shell.json(
        "topics", "configure", "orders", "--partitions", "4", "--retention", "90s", "--unset", "cleanup.policy"
    )
    assert (changed["partitions"], changed["retention"], changed["config"]) == (4, "90s", {})
    assert shell.json("topics", "configure", "orders", "--retention", "forever")["retention_ms"] is None
    assert [each["partition_id"] for each in shell.json("topics", "show", "orders")["of_partition"]] == [0, 1, 2, 3]
    assert "high watermark" in shell.run("topics", "show", "orders")
    assert shell.json("topics", "delete", "orders", exit_code=1)["error"]["code"] == "invalid_input"
    shell.run("topics", "delete", "orders", "--yes")
    assert shell.json("topics", "list")["topics"] == []
    assert shell.json("topics", "show", "orders", exit_code=1)["error"]["code"] == "topic_not_found"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create", "orders"), "topic_already_exists"),
        (("create", "a b"), "invalid_name"),
        (("create", "x", "--partitions", "0"), "invalid_input"),
        (("create", "x", "--retention", "soon"), "invalid_input"),
        (("create", "x", "--set", "novalue"), "invalid_input"),
        (("configure", "orders", "--partitions", "2"), "invalid_input"),
        (("read", "orders", "--start", "soon"), "invalid_offset"),
        (("append", "orders", "/no/such/file"), "invalid_input"),
        (("compact", "none"), "topic_not_found"),
    ],
)
def test_what_makes_no_sense_is_named(shell: Shell, words: tuple[str, ...], code: str) -> None:
    assert shell.json("topics", *words, exit_code=1)["error"]["code"] == code


def test_records_go_in_and_come_out_as_json_lines(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text(lines(10))
    assert shell.json("topics", "append", "orders", str(tmp_path / "records.jsonl"))["records"] == 10
    odd = '{"value": {"base64": "/wA="}, "headers": {"h": "x", "none": null}}\n\n{"value": null, "key": "t"}\n'
    assert (
        shell.json("topics", "append", "orders", "--partition", "1", "--producer", "p", "1", lines=odd)["records"] == 2
    )
    assert shell.json("topics", "append", "orders", "--producer", "p", "1", lines=odd)["replayed"]
    records = shell.json("topics", "read", "orders")["records"]
    assert len(records) == 12
    assert {record["key"]: record["value"] for record in records if record["key"] == "3"} == {"3": '{"n":3}'}
    [binary] = [record for record in records if record.get("headers")]
    assert (binary["value"], binary["headers"]) == ({"base64": "/wA="}, {"h": "x", "none": None})
    read = shell.run("topics", "read", "orders", "--partition", "1", "--start", "0", "--end", "2", "--limit", "1")
    assert [json.loads(line)["offset"] for line in read.splitlines()] == [0]
    # What was read can be appended elsewhere.
    shell.run("topics", "create", "copy")
    again = shell.run("topics", "read", "orders", "--limit", "0")
    assert shell.json("topics", "append", "copy", lines=again)["records"] == 12
    copied = shell.json("topics", "read", "copy")["records"]
    assert [(r["key"], r["value"], r["timestamp"]) for r in copied] == [
        (r["key"], r["value"], r["timestamp"]) for r in records
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        "x",
        "[1]",
        '{"key": "k"}',
        '{"value": "v", "valve": 1}',
        '{"value": "v", "timestamp": "soon"}',
        '{"value": {"base64": "?"}}',
    ],
)
def test_a_line_that_is_no_record_is_named_and_nothing_is_appended(shell: Shell, wrong: str) -> None:
    failed = shell.json("topics", "append", "orders", lines='{"value": "fine"}\n' + wrong + "\n", exit_code=1)["error"]
    assert failed["code"] == "invalid_input" and "line 2" in failed["message"]
    assert shell.json("topics", "read", "orders")["records"] == []


def test_old_segments_go_and_small_ones_are_merged(shell: Shell) -> None:
    for _ in range(3):
        shell.run("topics", "append", "orders", "--partition", "0", lines=lines(5))
    assert shell.json("topics", "compact", "orders")["before"] == 3
    assert shell.json("topics", "show", "orders")["segments"] == 1
    shell.run("groups", "reset", "slow", "orders", "--to", "3", "--execute")
    assert shell.json("topics", "retain")["kept"][0]["group_id"] == "slow"
    assert "slow" in shell.run("topics", "retain")
    shell.run("groups", "delete", "slow")
    assert shell.json("topics", "retain", "orders") == {"segments": 1, "kept": []}
    assert shell.json("topics", "show", "orders")["of_partition"][0]["log_start_offset"] == 15


def test_a_groups_offsets_are_shown_first_and_set_when_told(shell: Shell) -> None:
    shell.run("topics", "append", "orders", "--partition", "1", lines=lines(10))

    def then(to: str, *more: str) -> dict[int, int]:
        found = shell.json("groups", "reset", "g", "orders", "--to", to, *more)["offsets"]
        return {each["partition_id"]: each["then"] for each in found}

    assert then("latest") == {0: 0, 1: 10, 2: 0}
    assert then("earliest", "--partition", "1") == {1: 0}
    assert then("4", "--partition", "1") == {1: 4}
    assert then((TIME + timedelta(minutes=7)).isoformat()) == {0: 0, 1: 7, 2: 0}
    assert shell.json("groups", "list")["groups"] == []
    assert "nothing was changed" in shell.run("groups", "reset", "g", "orders", "--to", "latest")
    assert then("6", "--partition", "1", "--execute") == {1: 6}
    [group] = shell.json("groups", "list")["groups"]
    assert (group["group"], group["topics"], group["lag"]) == ("g", ["orders"], 4)
    assert [each["lag"] for each in shell.json("groups", "show", "g")["partitions"]] == [0, 4, 0]
    for wrong in ("soon", "2026-01-02T03:04:05"):
        assert (
            shell.json("groups", "reset", "g", "orders", "--to", wrong, exit_code=1)["error"]["code"] == "invalid_input"
        )
    shell.run("groups", "delete", "g")
    assert shell.json("groups", "show", "g", exit_code=1)["error"]["code"] == "consumer_group_not_found"
