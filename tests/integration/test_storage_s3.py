"""The S3 engine, against a real server."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeward
from lakeward.arrow import file_writer
from lakeward.arrow.imports import import_files
from lakeward.arrow.write import write_arrow
from lakeward.errors import FileRefused, InvalidSetting, ObjectNotFound, StorageError, WarehouseNotWritable
from lakeward.storage import s3 as s3_storage
from lakeward.storage.engine import StorageEngine, compute_checksum
from lakeward.storage.engines import engine_for
from tests.support.s3 import S3, running_server
from tests.unit.arrow.targets import target_for
from tests.unit.arrow.test_scan import Table


def settings(s3: S3, **others: Any) -> dict[str, Any]:
    return {
        "endpoint": s3.endpoint,
        "region": s3.region,
        "access_key": s3.access_key,
        "secret_key": s3.secret_key,
        **others,
    }


@pytest.fixture
def engine(s3: S3) -> StorageEngine:
    return engine_for(s3.warehouse, settings(s3))


def test_what_was_written_is_read_back_with_its_size_and_time(s3: S3, engine: StorageEngine) -> None:
    location = f"{s3.warehouse}/ns/t-12345678/data/i/00000.parquet"
    engine.write(location, b"hello")
    assert engine.read(location) == b"hello"
    assert engine.size(location) == 5
    assert engine.exists(location)
    assert engine.modified(location).tzinfo is not None


def test_a_missing_object_is_named_by_every_reading_call(s3: S3, engine: StorageEngine) -> None:
    location = f"{s3.warehouse}/none"
    assert not engine.exists(location)
    for call in (engine.read, engine.size, engine.open_input, engine.checksum, engine.modified):
        with pytest.raises(ObjectNotFound, match=f"{s3.warehouse}/none"):
            call(location)


@pytest.mark.parametrize("parts", [0, 1, 2.5])
def test_an_output_of_any_size_appears_whole_and_only_at_close(
    s3: S3, engine: StorageEngine, parts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "PART_SIZE", 5 << 20)  # the smallest part that the protocol allows
    data = bytes(range(256)) * int((5 << 20) * parts / 256)
    location = f"{s3.warehouse}/big"
    with engine.open_output(location) as output:
        for start in range(0, len(data), 1 << 20):
            output.write(data[start : start + (1 << 20)])
        assert not engine.exists(location)
        assert output.tell() == len(data)
    assert engine.read(location) == data


def test_an_aborted_output_leaves_no_object_and_no_open_upload(
    s3: S3, engine: StorageEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "PART_SIZE", 5 << 20)
    location = f"{s3.warehouse}/aborted"

    def write() -> None:
        with engine.open_output(location) as output:
            output.write(bytes(11 << 20))
            raise RuntimeError("the writer failed")

    with pytest.raises(RuntimeError):
        write()
    assert not engine.exists(location)
    assert not s3.client().list_multipart_uploads(Bucket=s3.bucket).get("Uploads")


def test_the_stores_own_checksum_is_that_of_the_bytes(s3: S3, engine: StorageEngine) -> None:
    location = f"{s3.warehouse}/checked"
    engine.write(location, b"some bytes")
    checksum = engine.checksum(location)
    assert checksum is not None
    algorithm, _, value = checksum.partition(":")
    assert value == hashlib.new(algorithm, b"some bytes").hexdigest()
    assert compute_checksum(engine, location) == "sha256:" + hashlib.sha256(b"some bytes").hexdigest()
    assert compute_checksum(engine, location, algorithm) == checksum


def test_an_object_of_several_parts_gets_no_checksum_that_is_not_its_own(
    s3: S3, engine: StorageEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "PART_SIZE", 5 << 20)
    location = f"{s3.warehouse}/parts"
    with engine.open_output(location) as output:
        output.write(bytes(11 << 20))
    checksum = engine.checksum(location)
    assert checksum is None or compute_checksum(engine, location, checksum.partition(":")[0]) == checksum


def test_parquet_is_read_by_ranges_through_the_engine(s3: S3, engine: StorageEngine) -> None:
    location = f"{s3.warehouse}/t.parquet"
    with engine.open_output(location) as output, pq.ParquetWriter(output, pa.schema([("x", pa.int64())])) as writer:
        writer.write_table(pa.table({"x": [1, 2, 3]}))
    with engine.open_input(location) as source:
        source.seek(engine.size(location) - 4)
        assert source.read() == b"PAR1"
    with engine.open_input(location) as source:
        assert pq.read_table(source).to_pydict() == {"x": [1, 2, 3]}


def test_more_objects_than_one_request_takes_are_listed_and_deleted_and_the_neighbour_stays(
    s3: S3, engine: StorageEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "DELETE_BATCH", 10)
    for number in range(25):
        engine.write(f"{s3.warehouse}/data/a/{number}", b"x")
    engine.write(f"{s3.warehouse}/data/ab", b"x")
    assert {each.location for each in engine.list(f"{s3.warehouse}/data/a/")} == {
        f"{s3.warehouse}/data/a/{number}" for number in range(25)
    }
    assert engine.delete([f"{s3.warehouse}/data/a/{number}" for number in (0, 1, 99)]) == []
    assert engine.delete_prefix(f"{s3.warehouse}/data/a/") == 23
    assert [each.location for each in engine.list(f"{s3.warehouse}/data/")] == [f"{s3.warehouse}/data/ab"]
    assert engine.delete_prefix(f"{s3.warehouse}/data/a/") == 0


def test_delete_gives_the_objects_that_it_could_not_delete(s3: S3, engine: StorageEngine) -> None:
    failures = engine.delete(["s3://no-such-bucket-here/a", f"{s3.warehouse}/b"])
    # A store may take a missing bucket's objects for deleted; what it refuses must come back by name.
    assert all(failure.location == "s3://no-such-bucket-here/a" for failure in failures)
    refused = engine_for(s3.warehouse, settings(s3, access_key="nobody"))
    location = f"{s3.warehouse}/kept"
    engine.write(location, b"x")
    assert [failure.location for failure in refused.delete([location])] == [location]
    assert engine.exists(location)


def test_a_writable_prefix_passes_and_leaves_nothing(s3: S3, engine: StorageEngine) -> None:
    engine.check_writable(s3.warehouse)
    assert list(engine.list(f"{s3.warehouse}/")) == []


def test_wrong_credentials_are_an_error_that_shows_no_secret(s3: S3) -> None:
    refused = engine_for("s3", settings(s3, secret_key="hidden-and-wrong"))
    for call in (refused.check_writable, refused.read, refused.open_input):
        with pytest.raises(WarehouseNotWritable) as caught:
            call(f"{s3.warehouse}/x")
        assert "hidden-and-wrong" not in str(caught.value)
        assert s3.bucket in str(caught.value)
    assert "hidden-and-wrong" not in repr(refused)


def test_a_missing_bucket_is_named(engine: StorageEngine) -> None:
    with pytest.raises(StorageError, match="no-such-bucket-here"):
        engine.read("s3://no-such-bucket-here/x")


def test_an_endpoint_that_does_not_answer_is_a_storage_error(s3: S3) -> None:
    silent = engine_for("s3", settings(s3, endpoint="http://127.0.0.1:9"))
    with pytest.raises(StorageError, match="endpoint"):
        silent.read(f"{s3.warehouse}/x")


def test_half_of_a_pair_of_keys_and_unknown_settings_are_refused_without_their_values() -> None:
    with pytest.raises(InvalidSetting, match="secret_key"):
        engine_for("s3", {"access_key": "a"})
    with pytest.raises(InvalidSetting, match="'secretkey'") as caught:
        engine_for("s3", {"secretkey": "hidden"})
    assert "hidden" not in str(caught.value)


def test_a_table_on_s3_is_written_streamed_imported_and_scanned(
    s3: S3, engine: StorageEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_storage, "PART_SIZE", 5 << 20)
    monkeypatch.setattr(file_writer, "FLUSH_ROWS", 1 << 18)
    target = target_for(s3.warehouse, {"id": "long", "noise": "string"}, engine=engine, compression="none")
    noise = pa.array([f"{i * 2654435761 % 2**32:08x}" for i in range(600_000)])
    table = Table(target)
    table.add(write_arrow(target, pa.table({"id": range(600_000), "noise": noise})))
    table.add(write_arrow(target, {"id": [-1]}))
    pq.write_table(pa.table({"id": [-2]}), tmp_path / "f.parquet")
    table.add(import_files(target, [tmp_path / "f.parquet", table.files[1].file_path]))
    assert [engine.size(file.file_path) for file in table.files] == [file.file_size for file in table.files]
    assert [compute_checksum(engine, file.file_path) for file in table.files] == [file.checksum for file in table.files]
    assert [row["id"] for row in table.rows(filter="id < 0")] == [-1, -1, -2]
    assert table.scan(columns=["id"]).read_all().num_rows == 600_003
    with pytest.raises(FileRefused, match="s3://") as caught:
        import_files(target, [f"{s3.warehouse}/none.parquet"])
    assert caught.value.reason == "not_found"


def test_uploads_that_nobody_completes_end_with_their_prefix_or_their_time(s3: S3, engine: StorageEngine) -> None:
    """No listing shows them, and the store keeps and bills their parts."""
    client = s3.client()

    def begin(name: str) -> None:
        key = f"{s3.warehouse.removeprefix(f's3://{s3.bucket}/')}/{name}"
        upload = client.create_multipart_upload(Bucket=s3.bucket, Key=key)["UploadId"]
        client.upload_part(Bucket=s3.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x")

    def left() -> list[str]:
        found = client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", ())
        return sorted(each["Key"].rpartition("/")[2] for each in found)

    for name in ("data/a/1", "data/ab/2", "data/b/3"):
        begin(name)
    engine.delete_prefix(f"{s3.warehouse}/data/a/")
    assert left() == ["2", "3"]
    now = datetime.now(UTC)
    assert engine.end_uploads(f"{s3.warehouse}/", now - timedelta(days=1)) == 0
    assert engine.end_uploads(f"{s3.warehouse}/", now + timedelta(days=1)) == 2
    assert left() == []


def test_a_load_whose_storage_cannot_be_reached_is_answered_503(tmp_path: Path) -> None:
    """A server of its own for the test, since it is stopped."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server()).with_new_bucket()
        options = {f"s3_{name}": value for name, value in settings(server).items()}
        with lakeward.connect(tmp_path / "registry.db", server.warehouse, **options) as lake:
            lake.create_table("shop.orders", {"id": "long"})
            lake.append("shop.orders", [{"id": 1}])
            url, token = lake.serve()
            path = f"{url}/v1/namespaces/shop/tables/orders"
            headers = {"Authorization": f"Bearer {token}"}
            assert httpx.get(path, headers=headers, timeout=100).status_code == 200
            stack.close()
            answer = httpx.get(path, headers=headers, timeout=100)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
            assert answer.json()["error"]["type"] == "ServiceUnavailableException"
            assert httpx.get(f"{url}/health").status_code == 200
