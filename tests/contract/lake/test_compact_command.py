"""`lakeward compact`: says what it would do and why, and does it."""

from __future__ import annotations

from pathlib import Path

from lakeward import Lake
from tests.support.lakes import ROWS, make_table, open_lake
from tests.support.shell import Shell


def fill(lake: Lake) -> None:
    make_table(lake, "sales.landed", format="json")
    make_table(lake, "sales.few")
    for name in ("sales.landed", "sales.few"):
        for _ in range(2):
            lake.append(name, ROWS)


def test_a_dry_run_says_what_would_be_done_and_why_and_does_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with open_lake(str(tmp_path / "registry.db"), tmp_path) as lake:
        fill(lake)
        rows = {row["table"]: row for row in shell.json("compact", "--dry-run")["compaction"]}
        landed, few = rows["sales.landed"], rows["sales.few"]
        assert (landed["state"], landed["files"], landed["into"]) == ("landing", 2, 1)
        assert landed["why"] == "JSON lines become Parquet"
        assert (few["files"], few["into"]) == (2, None)
        assert "fewer than 5 small files" in few["why"]
        assert "JSON lines become Parquet" in shell.run("compact", "--dry-run", "sales.landed")
        assert (lake.table("sales.landed").landing_file_count, lake.table("sales.few").file_count) == (2, 2)


def test_it_compacts_every_table_or_the_one_that_is_named(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with open_lake(str(tmp_path / "registry.db"), tmp_path) as lake:
        fill(lake)
        assert shell.json("compact", "sales.few")["compacted"] == []
        (done,) = shell.json("compact")["compacted"]
        assert (done["table"], done["files_before"], done["files_after"], done["rows"]) == ("sales.landed", 2, 1, 12)
        assert lake.table("sales.landed").row_count == 12
        assert shell.json("compact", "sales.none", exit_code=1)["error"]["code"] == "table_not_found"
