"""What commands print for people: names that say what was done, files that can be told apart, failures with their reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.lake import MetadataStore
from lakeward.metadata import MetadataManager, SyncMode, SyncStatus
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.shell import Shell


def test_upkeep_says_what_it_did_and_scripts_get_the_fields_own_names(tmp_path: Path) -> None:
    open_lake(str(tmp_path / "registry.db"), tmp_path).close()
    shell = Shell(tmp_path)
    assert shell.run("recover").startswith("writes given up  0\n")
    assert "changes nobody waits for" in shell.run("clean")
    assert (shell.json("recover")["intents"], shell.json("clean")["changes"]) == (0, 0)


def test_files_of_two_appends_are_told_apart_by_where_they_stand(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with open_lake(str(tmp_path / "registry.db"), tmp_path) as lake:
        make_table(lake, "sales.few")
        for _ in range(2):
            lake.append("sales.few", ROWS)
        location = lake.table("sales.few").location
    rows = shell.json("files", "sales.few")["files"]
    assert len({row["file"] for row in rows}) == 2
    assert [f"{location}/{row['file']}" for row in rows] == [row["path"] for row in rows]


def test_a_list_of_runs_says_why_they_failed_and_needs_no_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetadataStore.open(tmp_path / "registry.db"), MetadataManager(tmp_path / "registry.db") as manager:
        run = manager.start_sync_run("shop", SyncMode.BATCH)
        manager.complete_sync_run(run.id, SyncStatus.FAILED, error_message="the source went away")
    shell = Shell(tmp_path)
    shell.options = ["--registry", str(tmp_path / "registry.db")]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "the source went away" in shell.run("runs", "list")
    assert shell.json("errors", "list")["total"] == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []
