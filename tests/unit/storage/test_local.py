from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.errors import (
    InvalidInput,
    InvalidSetting,
    ObjectNotFound,
    StorageError,
    StorageFull,
    StorageUnavailable,
    WarehouseNotWritable,
)
from lakeward.storage import local
from lakeward.storage.engine import StorageEngine, compute_checksum
from lakeward.storage.engines import engine_for


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}/my lake/t-1"


@pytest.fixture
def engine(root: str) -> StorageEngine:
    return engine_for(root)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_a_write_makes_its_folders_and_leaves_one_file(engine: StorageEngine, root: str, tmp_path: Path) -> None:
    engine.write(f"{root}/data/i/a", b"hello")
    engine.write(f"{root}/data/i/a", pa.py_buffer(b"hello again"))
    assert engine.read(f"{root}/data/i/a") == b"hello again"
    assert engine.size(f"{root}/data/i/a") == 11
    assert files(tmp_path / "my lake/t-1/data") == ["i", "i/a"]
    assert engine.modified(f"{root}/data/i/a").tzinfo is not None


def test_an_output_appears_only_at_close(engine: StorageEngine, root: str) -> None:
    with engine.open_output(f"{root}/data/i/a") as output:
        output.write(b"x" * 10)
        output.flush()
        assert output.tell() == 10
        assert not engine.exists(f"{root}/data/i/a")
    assert output.closed
    assert engine.size(f"{root}/data/i/a") == 10


def test_an_output_that_failed_leaves_nothing(engine: StorageEngine, root: str, tmp_path: Path) -> None:
    def write() -> None:
        with engine.open_output(f"{root}/a") as output:
            output.write(b"x")
            raise RuntimeError("the writer failed")

    with pytest.raises(RuntimeError):
        write()
    assert files(tmp_path) == ["my lake", "my lake/t-1"]


def test_parquet_streams_into_an_output_and_back(engine: StorageEngine, root: str) -> None:
    with engine.open_output(f"{root}/a") as output, pq.ParquetWriter(output, pa.schema([("x", pa.int64())])) as writer:
        writer.write_table(pa.table({"x": [1, 2]}))
    with engine.open_input(f"{root}/a") as source:
        assert pq.read_table(source).to_pydict() == {"x": [1, 2]}


def test_a_missing_file_is_named_by_every_reading_call(engine: StorageEngine, root: str) -> None:
    engine.write(f"{root}/a", b"")
    for location in (f"{root}/none", f"{root}/a/below a file"):
        assert not engine.exists(location)
        for call in (engine.read, engine.size, engine.open_input, engine.checksum, engine.modified):
            with pytest.raises(ObjectNotFound, match=location):
                call(location)


def test_a_file_system_has_no_checksum_but_one_can_be_computed(engine: StorageEngine, root: str) -> None:
    engine.write(f"{root}/a", b"hello")
    assert engine.checksum(f"{root}/a") is None
    assert compute_checksum(engine, f"{root}/a") == "sha256:" + hashlib.sha256(b"hello").hexdigest()
    with pytest.raises(InvalidInput, match="sha0"):
        compute_checksum(engine, f"{root}/a", "sha0")


def test_deleting_takes_the_empty_folders_up_to_the_tables(engine: StorageEngine, root: str, tmp_path: Path) -> None:
    engine.write(f"{root}/data/i/a", b"")
    engine.write(f"{root}/data/j/b", b"")
    assert engine.delete([f"{root}/data/i/a", f"{root}/data/i/missing"], below=root) == []
    assert files(tmp_path / "my lake/t-1") == ["data", "data/j", "data/j/b"]
    assert engine.delete([f"{root}/data/j/b"], below=root) == []
    assert files(tmp_path) == ["my lake", "my lake/t-1"]


def test_without_a_bound_only_the_files_own_folder_goes(engine: StorageEngine, root: str, tmp_path: Path) -> None:
    engine.write(f"{root}/data/i/a", b"")
    assert engine.delete([f"{root}/data/i/a"]) == []
    assert files(tmp_path / "my lake/t-1") == ["data"]


def test_delete_gives_what_it_could_not_delete_and_deletes_the_rest(engine: StorageEngine, root: str) -> None:
    engine.write(f"{root}/data/i/a", b"")
    (failure,) = engine.delete([f"{root}/data", f"{root}/data/i/a"])
    assert failure.location == f"{root}/data"
    assert f"{root}/data" in failure.reason
    assert not engine.exists(f"{root}/data/i/a")


def test_a_prefix_is_listed_and_deleted_whole_and_its_neighbour_stays(
    engine: StorageEngine, root: str, tmp_path: Path
) -> None:
    engine.write(f"{root}/data/i/a", b"123")
    engine.write(f"{root}/data/i/deep/b", b"")
    engine.write(f"{root}/data/ij/c", b"")
    assert {(o.location, o.size) for o in engine.list(f"{root}/data/i/")} == {
        (f"{root}/data/i/a", 3),
        (f"{root}/data/i/deep/b", 0),
    }
    assert engine.delete_prefix(f"{root}/data/i/") == 2
    assert files(tmp_path / "my lake/t-1") == ["data", "data/ij", "data/ij/c"]
    assert engine.delete_prefix(f"{root}/data/i/") == 0
    assert list(engine.list(f"{root}/data/i/")) == []


def test_a_link_below_a_prefix_goes_and_what_it_points_at_stays(
    engine: StorageEngine, root: str, tmp_path: Path
) -> None:
    engine.write(f"{root}/data/i/a", b"")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("x")
    (tmp_path / "my lake/t-1/data/i/link").symlink_to(tmp_path / "outside")
    engine.delete_prefix(f"{root}/data/i/")
    assert (tmp_path / "outside/kept").exists()
    assert not engine.exists(f"{root}/data/i/link")


@pytest.mark.parametrize("prefix", ["file:///x", "file:///", "file:////"])
def test_a_prefix_that_would_reach_too_far_is_refused(engine: StorageEngine, prefix: str) -> None:
    with pytest.raises(InvalidInput):
        engine.delete_prefix(prefix)
    with pytest.raises(InvalidInput):
        list(engine.list(prefix))


def test_a_writable_folder_passes_and_leaves_nothing(engine: StorageEngine, root: str, tmp_path: Path) -> None:
    engine.check_writable(root)
    assert files(tmp_path) == ["my lake", "my lake/t-1"]


def test_a_folder_where_a_file_stands_is_no_warehouse(engine: StorageEngine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        engine.check_writable(f"file://{tmp_path}/file")


@pytest.mark.parametrize(
    "number, kind",
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, WarehouseNotWritable),
        (errno.EROFS, WarehouseNotWritable),
        (errno.EIO, StorageUnavailable),
        (errno.ESTALE, StorageUnavailable),
        (errno.EISDIR, StorageError),
    ],
)
def test_errors_of_the_system_become_kinds_of_storage_error(number: int, kind: type[StorageError]) -> None:
    error = local.storage_error("write", "file:///lake/a", OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert "file:///lake/a" in str(error)
    assert os.strerror(number) in str(error)


def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    """A real limit on a file's size in a process of its own stands for the full disk: the write itself fails."""
    code = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from lakeward.errors import StorageError
from lakeward.storage.engines import engine_for
try:
    engine_for("local").write("file://{tmp_path}/a", bytes(1_000_000))
except StorageError as error:
    sys.exit(0 if "{tmp_path}/a" in str(error) else 3)
sys.exit(4)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert files(tmp_path) == []


def test_writers_and_a_cleaner_of_empty_folders_do_not_disturb_each_other(engine: StorageEngine, root: str) -> None:
    engine = engine_for("local", {"fsync": False})
    stop = threading.Event()

    def clean() -> None:
        while not stop.wait(0.0005):
            engine.delete([f"{root}/data/i/none"], below=root)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for number in range(300):
            engine.write(f"{root}/data/i/{number}", b"x")
            engine.delete([f"{root}/data/i/{number}"], below=root)
    finally:
        stop.set()
        cleaner.join()


def test_one_engine_a_configuration_and_unknown_settings_are_refused() -> None:
    assert engine_for("file:///a") is engine_for("local", {})
    assert engine_for("local", {"fsync": False}) is not engine_for("local", {"fsync": True})
    with pytest.raises(InvalidSetting, match="'sync'"):
        engine_for("local", {"sync": "secret"})
    with pytest.raises(InvalidSetting, match="fsync"):
        engine_for("local", {"fsync": "no"})
    with pytest.raises(InvalidSetting, match="gs://b/x"):
        engine_for("gs://b/x")


def test_files_of_another_program_can_be_made_durable_and_a_missing_one_is_named(tmp_path: Path) -> None:
    engine = local.LocalEngine()
    table = f"file://{tmp_path}/table"
    (tmp_path / "table" / "a" / "b").mkdir(parents=True)
    (tmp_path / "table" / "a" / "b" / "1.parquet").write_bytes(b"x")
    engine.sync([f"{table}/a/b/1.parquet"])
    with pytest.raises(ObjectNotFound, match=r"2\.parquet"):
        engine.sync([f"{table}/a/b/2.parquet"])


def test_a_folder_that_another_writer_has_made_and_not_synced_yet_is_made_durable_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds a folder there cannot know that its entry is on disk: a loss of power would take the file with it."""
    synced: list[str] = []
    sync = local._sync_folder

    def seen(folder: str) -> None:
        synced.append(folder)
        sync(folder)

    monkeypatch.setattr(local, "_sync_folder", seen)
    for number, write in enumerate((local.LocalEngine().write, _by_another_program)):
        made = tmp_path / str(number) / "data" / "i"
        made.mkdir(parents=True)  # by another writer
        synced.clear()
        write(f"file://{made}/1.parquet", b"x")
        assert {str(made), str(made.parent), str(made.parent.parent), str(tmp_path)} <= set(synced)
        synced.clear()
        write(f"file://{made}/2.parquet", b"x")
        assert synced == [str(made)]


def _by_another_program(location: str, data: bytes) -> None:
    Path(location.removeprefix("file://")).write_bytes(data)
    local.LocalEngine().sync([location])


def test_a_location_that_leads_out_of_its_folder_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    other = tmp_path / "other.parquet"
    other.write_bytes(b"x")
    location = f"file://{tmp_path}/table/../other.parquet"
    (failure,) = local.LocalEngine().delete([location], below=f"file://{tmp_path}/table")
    assert failure.location == location and "leads out" in failure.reason
    assert other.exists()
