"""Loads over HTTP where something keeps them waiting, and while writers never rest."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeward import Lake
from lakeward.catalog import loads
from lakeward.components.supervisor import running
from lakeward.registry import intents
from lakeward.storage.locations import local_path
from lakeward.tables import compaction
from tests.support.compacting import rewritten
from tests.support.lakes import ROWS, assert_nothing_left_over, make_table, open_lake

NAME = "sales.orders"
LOADS = 120  # more than a server has threads
SOAK_SECONDS = 8.0


@contextmanager
def client_of(lake: Lake) -> Iterator[httpx.Client]:
    url, token = lake.serve()
    limits = httpx.Limits(max_connections=LOADS + 10)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=100, limits=limits) as opened:
        yield opened


def path_of(name: str) -> str:
    namespace, table = name.split(".")
    return f"/v1/namespaces/{namespace}/tables/{table}"


def test_loads_that_wait_for_a_held_table_keep_nobody_else_waiting(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, hold_timeout_seconds=100) as lake, client_of(lake) as client:
        for name in (NAME, "sales.other"):
            make_table(lake, name)
            lake.append(name, ROWS)
        with ThreadPoolExecutor(LOADS) as threads:
            with lake.hold(NAME):
                waiting = [threads.submit(client.get, path_of(NAME)) for _ in range(LOADS)]
                for path in ("/health", path_of("sales.other"), "/v1/namespaces"):
                    for _ in range(5):
                        assert client.get(path).status_code == 200
                assert not any(each.done() for each in waiting)
            assert {each.result().status_code for each in waiting} == {200}
        assert len(lake.snapshots(NAME)) == 1


def test_each_load_of_a_held_table_is_answered_503_at_its_own_time(made_url: str, tmp_path: Path) -> None:
    with open_lake(made_url, tmp_path, hold_timeout_seconds=0.3) as lake, client_of(lake) as client:
        make_table(lake, NAME)
        lake.append(NAME, ROWS)
        with lake.hold(NAME), ThreadPoolExecutor(10) as threads:
            answers = list(threads.map(lambda _: client.get(path_of(NAME)), range(10)))
            assert {(answer.status_code, answer.json()["error"]["type"]) for answer in answers} == {
                (503, "ServiceUnavailableException")
            }
        assert client.get(path_of(NAME)).status_code == 200


def test_a_storage_that_hangs_is_answered_503_and_keeps_nobody_else_waiting(
    made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "LOAD_SECONDS", 0.5)
    with open_lake(made_url, tmp_path) as lake, client_of(lake) as client:
        for name in (NAME, "sales.other"):
            make_table(lake, name)
            lake.flush(name)
        file = Path(local_path(lake.table(NAME).metadata_location or ""))
        held = file.read_bytes()
        file.unlink()
        os.mkfifo(file)  # whoever reads it waits
        with ThreadPoolExecutor(LOADS) as threads:
            hanging: list[Future[httpx.Response]] = []
            for _ in range(loads.STORAGE_WORKERS // 2):
                hanging.append(threads.submit(client.get, path_of(NAME)))
            for path in ("/health", path_of("sales.other"), "/v1/namespaces"):
                assert client.get(path).status_code == 200
            hanging += [threads.submit(client.get, path_of(NAME)) for _ in range(LOADS - len(hanging))]
            for path in ("/health", "/v1/namespaces"):
                assert client.get(path).status_code == 200
            answers = [each.result() for each in hanging]
            assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(503, "1")}
        pipe = file.with_suffix(".pipe")
        file.rename(pipe)
        file.write_bytes(held)
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # what those who wait in it read is empty
        for name in (NAME, "sales.other"):
            assert client.get(path_of(name)).status_code == 200


def test_while_writers_and_upkeep_never_rest_no_load_fails_and_none_misses_a_row(made_url: str, tmp_path: Path) -> None:
    """The short soak: a writer without a pause, swaps of compaction, the snapshotter and the updater at work, and queries."""
    with open_lake(made_url, tmp_path, durable=False, keep_snapshots=10) as lake:
        table = make_table(
            lake,
            NAME,
            schema={"id": "long", "part": "int"},
            partition_by=["part"],
            properties={"lakeward.snapshot.every-seconds": "0.3", "commit.manifest.min-count-to-merge": "4"},
        )
        appended, swaps, errors, done = [0], [0], list[BaseException](), threading.Event()

        def write() -> None:
            lake.append(NAME, [{"id": appended[0], "part": appended[0] % 3}])
            appended[0] += 1

        def compact() -> None:
            files = [file for file in lake.files(NAME) if file.snapshot_id is not None][:20]
            if len(files) > 1:
                _, intent, made = rewritten(lake, NAME, files)
                with suppress(intents.Overtaken):
                    compaction.swap(lake.registry, table, intent, files, made)
                    swaps[0] += 1
            done.wait(0.3)

        def again(work: object) -> None:
            try:
                while not done.is_set():
                    work()  # type: ignore[operator]
            except BaseException as error:
                errors.append(error)

        with running(lake, ("snapshotter", "iceberg_updater")):
            threads = [threading.Thread(target=again, args=(work,)) for work in (write, compact)]
            for thread in threads:
                thread.start()
            try:
                catalog = RestCatalog("lakeward", uri=lake.catalog_url, token=lake.token or "")
                loaded, deadline = 0, time.monotonic() + SOAK_SECONDS
                while time.monotonic() < deadline or loaded < 5 or not swaps[0]:
                    acknowledged = appended[0]
                    found = catalog.load_table(NAME).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
                    assert len(found) == len(set(found))
                    assert set(found) >= set(range(acknowledged))
                    loaded += 1
            finally:
                done.set()
                for thread in threads:
                    thread.join()
        assert errors == []
        made = lake.snapshots(NAME, expired=True)
        queries = [each for each in made if each.trigger == "query" and each.operation == "append"]
        assert len(queries) <= loaded + 1  # at most one a load
        assert {each.operation for each in made} <= {"append", "replace"}
        lake.flush(NAME)
        lake.recover()
        lake.clean()
        assert_nothing_left_over(lake, NAME)
