"""What stands where a registry is looked for or made: what is refused names it and the way out, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import RegistryLost
from lakeward.lake import connect
from tests.support.shell import invoke

CREATE: tuple[str, ...] = ("create", "shop.t", "--schema", "id long")


def refusal(*arguments: str) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 1, done.output
    return done.stderr


@pytest.mark.parametrize("command", [("tables",), CREATE, ("status",), ("db", "upgrade"), ("errors", "list")])
def test_a_registry_of_another_kind_is_named_with_the_way_out(tmp_path: Path, command: tuple[str, ...]) -> None:
    text, parquet, binary = tmp_path / "a.txt", tmp_path / "a.parquet", tmp_path / "a.bin"
    text.write_text("hello\n" * 100)
    pq.write_table(pa.table({"a": range(1000)}), parquet)
    binary.write_bytes(bytes(range(256)) * 8)
    before = {path: path.read_bytes() for path in (text, parquet, binary)}
    for path, what in (
        (tmp_path, "is a folder"),
        (text, "a text file"),
        (parquet, "a Parquet file"),
        (binary, "another kind"),
    ):
        said = refusal(*command, "--registry", str(path), "--warehouse", str(tmp_path / "w"))
        assert what in said and "--registry" in said and str(path) in said
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "w").exists()


def test_another_programs_database_is_left_alone_unless_it_is_to_have_a_registry(tmp_path: Path) -> None:
    path, options = tmp_path / "o.db", ("--registry", str(tmp_path / "o.db"), "--warehouse", str(tmp_path / "w"))
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE notes (text)")
    other.close()
    before = path.read_bytes()
    for command in (("tables",), CREATE):
        said = refusal(*command, *options)
        assert "holds no registry, but the table 'notes'" in said and "lakeward db upgrade" in said
    assert path.read_bytes() == before, "not a byte of it, nor its journal's mode"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["o.db"]
    commands: list[tuple[str, ...]] = [("db", "upgrade"), CREATE]
    for command in commands:
        assert invoke(*command, *options).exit_code == 0
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    other.close()


def test_a_registry_whose_file_another_program_has_written_anew_is_in_the_write_ahead_log_again(tmp_path: Path) -> None:
    with connect(tmp_path / "r.db", tmp_path / "w") as lake:
        lake.create_table("shop.t", {"id": "long"})
    with sqlite3.connect(tmp_path / "r.db") as other:
        assert other.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    other.close()
    with connect(tmp_path / "r.db", tmp_path / "w") as lake:
        lake.append("shop.t", [{"id": 1}])
    with sqlite3.connect(tmp_path / "r.db") as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_registry_is_made_in_an_empty_database_of_another_program(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "r.db") as other:
        other.execute("PRAGMA user_version = 7")
    other.close()
    with connect(tmp_path / "r.db", tmp_path / "w") as lake:
        lake.create_table("shop.t", {"id": "long"})
        lake.append("shop.t", [{"id": 1}])
    with sqlite3.connect(tmp_path / "r.db") as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_refused_create_leaves_nothing_behind(tmp_path: Path) -> None:
    connect(tmp_path / "one.db", tmp_path / "w").close()
    before = {path.name for path in tmp_path.iterdir()}
    two, fresh = str(tmp_path / "two.db"), str(tmp_path / "fresh")
    assert "belongs to the registry" in refusal(*CREATE, "--registry", two, "--warehouse", str(tmp_path / "w"))
    inside = refusal(*CREATE, "--registry", two, "--warehouse", str(tmp_path / "w" / "in"))
    assert "is the warehouse of the registry" in inside
    for wrong in (
        ("create", "shop.t", "--schema", "id bogus"),
        (*CREATE, "--partition-by", "bucket(0, id)"),
        ("create", "t", "--schema", "id long"),
    ):
        refusal(*wrong, "--registry", two, "--warehouse", fresh)
    (tmp_path / "file").write_text("")
    before.add("file")
    refusal(*CREATE, "--registry", two, "--warehouse", str(tmp_path / "file"))
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_new_registry_takes_the_place_of_one_that_is_gone_as_the_refusal_says(tmp_path: Path) -> None:
    connect(tmp_path / "one.db", tmp_path / "w").close()
    options = ("--registry", str(tmp_path / "two.db"), "--warehouse", str(tmp_path / "w"))
    said = refusal(*CREATE, *options)
    assert "`lakeward db upgrade`" in said and "`lakeward db adopt`" in said.replace("\n", " ")
    for command in (("db", "upgrade"), ("db", "adopt"), CREATE):
        done = invoke(*command, *options)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_answered_from_a_file_that_is_not_the_registry_any_more(tmp_path: Path, is_replaced: bool) -> None:
    """Least of all that a batch is there: whoever is told so does not send it again."""
    path = tmp_path / "registry.db"
    with connect(path, tmp_path / "w") as lake:
        lake.create_table("shop.t", {"id": "long"})
        rows, batch = [{"id": 1}], ("stream", "first")
        assert lake.append("shop.t", rows, batch).rows == 1
        assert lake.append("shop.t", rows, batch).replayed
        if is_replaced:
            shutil.copy(path, tmp_path / "older.db")
            os.replace(tmp_path / "older.db", path)
        else:
            path.unlink()
        for ask in (
            lambda: lake.append("shop.t", rows, batch),
            lambda: lake.table("shop.t"),
            lambda: lake.metadata("shop.t"),
            lambda: lake.log.append("events", [b"x"]),
        ):
            with pytest.raises(RegistryLost, match="deleted or replaced"):
                ask()
