from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward import Lake
from lakeward.errors import FileRefused, InvalidInput, InvalidSchema, StorageError, TableNotFound
from lakeward.lake import RollingWriter
from lakeward.lake.rolling import _OpenFile
from lakeward.tables import tables
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, objects, open_lake
from tests.support.registries import assert_exact, rows_of
from tests.support.waiting import until

NAME = "sales.orders"


@pytest.fixture
def lake(made_url: str, tmp_path: Path) -> Iterator[Lake]:
    with open_lake(made_url, tmp_path, durable=False) as opened:
        make_table(opened, NAME)
        yield opened


def test_rows_are_registered_at_the_limit_of_rows_and_the_rest_at_the_end(lake: Lake) -> None:
    with lake.writer(NAME, rotate_rows=4) as writer:
        for number in range(10):
            writer.write({"id": number, "name": "n"})
            assert writer.committed_rows + writer.uncommitted_rows == number + 1
        assert [commit.rows for commit in writer.commits] == [4, 4]
        assert writer.uncommitted_rows == 2
        assert lake.table(NAME).row_count == 8
    assert (writer.committed_rows, writer.uncommitted_rows) == (10, 0)
    assert lake.table(NAME).row_count == 10
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == list(range(10))
    assert_exact(lake.registry, lake.table(NAME))
    assert_nothing_left_over(lake, NAME)


def test_rows_are_registered_at_the_limit_of_bytes(lake: Lake) -> None:
    with lake.writer(NAME, rotate_bytes=10_000) as writer:
        while not writer.commits:
            writer.write({"id": 1, "name": "x" * 1000})
        assert 5 <= writer.commits[0].rows <= 10


def test_rows_are_registered_when_their_time_is_over_though_nobody_writes(lake: Lake) -> None:
    with lake.writer(NAME, rotate_seconds=0.1) as writer:
        writer.write(ROWS)
        until(lambda: lake.table(NAME).row_count == len(ROWS))
        until(lambda: writer.committed_rows == len(ROWS))
        assert writer.uncommitted_rows == 0


def test_a_row_rows_and_arrow_are_all_taken(lake: Lake) -> None:
    with lake.writer(NAME) as writer:
        writer.write({"id": 1, "name": "a"})
        writer.write([{"id": 2}, {"id": 3, "name": "c"}])
        writer.write(pa.table({"id": [4]}))
        writer.write({"id": pa.array([5, 6]), "name": pa.array(["e", "f"])})
        writer.write([])
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert len(lake.files(NAME)) == 1


def test_one_rotation_is_one_commit_over_all_its_partitions(lake: Lake) -> None:
    make_table(lake, "sales.parts", partition_by=["name"])
    with lake.writer("sales.parts") as writer:
        writer.write(ROWS)
        result = writer.rotate()
    assert result is not None
    assert (len(result.files), result.rows) == (3, len(ROWS))
    assert len({file.registered_at for file in lake.files("sales.parts")}) == 1


def test_without_rows_there_is_neither_a_file_nor_a_commit(lake: Lake) -> None:
    with lake.writer(NAME) as writer:
        assert writer.rotate() is None
        writer.write([])
        assert writer.rotate() is None
    assert writer.commits == []
    assert objects(lake, lake.table(NAME)) == set()
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_refused_call_writes_none_of_its_rows_and_the_others_stay(lake: Lake) -> None:
    with lake.writer(NAME) as writer:
        writer.write(ROWS)
        for wrong in ([{"id": 100}, {"id": "x"}], [{"id": 100}, {"nome": "x"}], [{"id": 100}, {"id": 1.5}]):
            with pytest.raises(FileRefused):
                writer.write(wrong)
        assert writer.uncommitted_rows == len(ROWS)
    assert sorted(lake.scan(NAME).read_all()["id"].to_pylist()) == [row["id"] for row in ROWS]


def test_only_refused_calls_leave_nothing_behind(lake: Lake) -> None:
    with lake.writer(NAME) as writer, pytest.raises(FileRefused):
        writer.write({"nome": "x"})
    assert writer.commits == []
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_missing_partition_column_is_refused_and_not_filed_under_null(lake: Lake) -> None:
    make_table(lake, "sales.parts", partition_by=["name"])
    with lake.writer("sales.parts") as writer:
        with pytest.raises(FileRefused) as refused:
            writer.write({"id": 1})
        assert refused.value.reason == "missing_column"
        writer.write({"id": 2, "name": None})
    assert lake.table("sales.parts").row_count == 1


def test_a_file_that_was_given_up_costs_nothing_when_it_is_forgotten(lake: Lake) -> None:
    commits: list[None] = []
    file = _OpenFile(lake.registry, *tables.load_with_metadata(lake.registry, NAME))
    file.give_up()
    lake.registry.database.on_commit(lambda: commits.append(None))
    del file
    gc.collect()
    assert commits == []
    assert_nothing_left_over(lake, NAME)


def test_a_block_that_fails_leaves_its_rows_out_and_no_file_over(lake: Lake) -> None:
    with pytest.raises(KeyError), lake.writer(NAME, rotate_rows=4) as writer:
        writer.write(ROWS[:4])
        writer.write(ROWS[4:])
        raise KeyError
    assert writer.committed_rows == lake.table(NAME).row_count == 4
    assert rows_of(lake.registry, "pending_writes") == []
    assert_nothing_left_over(lake, NAME)


def test_a_closed_writer_says_so(lake: Lake) -> None:
    writer = lake.writer(NAME)
    writer.close()
    writer.close()
    with pytest.raises(InvalidInput, match="is closed"):
        writer.write(ROWS)
    assert not any(thread.name in ("lakeward-rotate", "lakeward-file") for thread in threading.enumerate())


@pytest.mark.parametrize("limit", ["rotate_seconds", "rotate_bytes", "rotate_rows"])
def test_a_limit_of_nothing_is_refused(lake: Lake, limit: str) -> None:
    with pytest.raises(InvalidInput, match=f"{limit}=0"):
        lake.writer(NAME, **{limit: 0})
    with pytest.raises(TableNotFound):
        lake.writer("sales.none")


def test_a_table_dropped_meanwhile_fails_the_writer_loudly(lake: Lake) -> None:
    writer = lake.writer(NAME)
    writer.write(ROWS)
    lake.drop_table(NAME)
    with pytest.raises(TableNotFound):
        writer.close()
    assert (writer.committed_rows, writer.commits) == (0, [])


def test_a_failed_rotation_by_time_is_told_at_the_next_call(lake: Lake) -> None:
    writer = lake.writer(NAME, rotate_seconds=0.1)
    writer.write(ROWS)
    lake.drop_table(NAME)
    until(lambda: writer._failure is not None)
    with pytest.raises(TableNotFound):
        writer.write(ROWS)
    writer.close()


def test_each_file_follows_the_schema_as_it_was_when_it_was_opened(lake: Lake) -> None:
    with lake.writer(NAME) as writer:
        writer.write({"id": 1, "name": "a"})
        lake.rename_column(NAME, "name", "label")
        writer.write({"id": 2, "name": "b"})
        writer.rotate()
        writer.write({"id": 3, "label": "c"})
    found = {row["id"]: row["label"] for row in lake.scan(NAME).read_all().to_pylist()}
    assert found == {1: "a", 2: "b", 3: "c"}


def test_threads_may_share_a_writer(lake: Lake) -> None:
    with lake.writer(NAME, rotate_rows=7) as writer:

        def work(start: int) -> None:
            for number in range(start, start + 25):
                writer.write({"id": number, "name": "n"})

        threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert writer.committed_rows == lake.table(NAME).row_count == 100
    assert len(set(lake.scan(NAME).read_all()["id"].to_pylist())) == 100
    assert_exact(lake.registry, lake.table(NAME))


def test_json_tables_have_a_writer_too(lake: Lake) -> None:
    make_table(lake, "sales.lines", format="json")
    with lake.writer("sales.lines", rotate_rows=3) as writer:
        writer.write(ROWS[:3])
        writer.write(ROWS[3:])
    assert lake.table("sales.lines").landing_file_count == 2
    assert lake.scan("sales.lines").read_all().num_rows == len(ROWS)


def test_a_sync_writer_s_commit_has_its_snapshot(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, metadata_updates="sync", durable=False) as lake:
        make_table(lake, NAME)
        with lake.writer(NAME) as writer:
            writer.write(ROWS)
            result = writer.rotate()
        assert result is not None
        assert result.snapshot_id == lake.snapshots(NAME)[0].snapshot_id
        assert writer.commits == [result]


def test_a_file_that_cannot_be_written_fails_the_writer_and_leaves_no_intent(lake: Lake) -> None:
    table = lake.table(NAME)
    folder = Path(table.location.removeprefix("file://"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file in place of the table's folder")
    writer: RollingWriter = lake.writer(NAME)
    writer.write(ROWS)
    with pytest.raises(StorageError, match="a file stands where a folder"):
        writer.close()
    assert writer.committed_rows == lake.table(NAME).row_count == 0
    folder.unlink()
    lake.recover()
    lake.recover()
    assert rows_of(lake.registry, "pending_writes") == []


def test_a_writer_does_not_go_on_into_a_table_that_was_made_again_under_the_name(lake: Lake) -> None:
    writer = lake.writer(NAME)
    writer.write({"id": 1, "name": "a"})
    writer.rotate()
    lake.drop_table(NAME)
    make_table(lake, NAME)
    with pytest.raises(TableNotFound, match=r"sales\.orders \(it was dropped\)"):
        writer.write({"id": 2, "name": "b"})
    writer.close()
    assert lake.scan(NAME).read_all().num_rows == 0


def test_a_writer_follows_its_table_to_another_name(lake: Lake) -> None:
    with lake.writer(NAME) as writer:
        writer.write({"id": 1, "name": "a"})
        writer.rotate()
        lake.rename_table(NAME, "sales.moved")
        make_table(lake, NAME)
        writer.write({"id": 2, "name": "b"})
    assert sorted(lake.scan("sales.moved").read_all()["id"].to_pylist()) == [1, 2]
    assert lake.table(NAME).row_count == 0


def test_a_change_of_the_table_that_the_open_file_would_not_fit_waits_for_it(lake: Lake) -> None:
    lake.create_table("sales.parts", {"id": "long", "p": "int"}, ["p"])
    with lake.writer("sales.parts") as writer:
        writer.write({"id": 1, "p": 7})
        lake.set_partition_spec("sales.parts", [])
        with pytest.raises(InvalidSchema, match=r"a write of .* is under way"):
            lake.drop_column("sales.parts", "p")
    lake.append("sales.parts", [{"id": 2}])
    assert sorted(lake.scan("sales.parts").read_all().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "p": 7},
        {"id": 2, "p": None},
    ]
