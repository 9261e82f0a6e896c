from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from lakeward.config import Settings
from lakeward.db import schema
from lakeward.errors import InvalidSetting, LakewardError, RegistryOutdated, RegistryUnavailable, WarehouseNotWritable
from lakeward.registry import Registry, intents, open_registry
from lakeward.tables import tables
from tests.support.postgres import PostgresServer
from tests.support.registries import NAME, assert_exact, make_table, open_at, register, rows_of

ROOT = Path(__file__).parents[3]


def test_a_new_registry_is_made_with_its_warehouse_and_found_again(registry_url: str, tmp_path: Path) -> None:
    with open_at(registry_url, tmp_path) as first:
        made = first.warehouse
        assert (made.name, made.location) == ("default", f"file://{tmp_path}/warehouse")
    with open_at(registry_url, tmp_path) as second:
        assert second.warehouse == made
        assert len(rows_of(second, "warehouses")) == 1


def test_a_registry_that_is_not_there_is_refused_where_none_is_to_be_made(registry_url: str, tmp_path: Path) -> None:
    for url in (registry_url, f"sqlite:///{tmp_path / 'mistyped' / 'registry.db'}"):
        with pytest.raises(RegistryOutdated, match="there is no lakehouse at"):
            open_registry(Settings(registry=url, warehouse=str(tmp_path / "warehouse")), create=False)
        assert list(tmp_path.iterdir()) == []
    open_at(registry_url, tmp_path).close()
    with open_registry(Settings(registry=registry_url, warehouse=str(tmp_path / "warehouse")), create=False) as found:
        assert found.warehouse.name == "default"


def test_a_warehouse_is_not_opened_at_another_place(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as registry:
        make_table(registry)
    with pytest.raises(InvalidSetting, match="warehouse_name of its own"):
        open_at(made_url, tmp_path / "elsewhere")
    with open_at(made_url, tmp_path / "elsewhere", warehouse_name="second") as other:
        with pytest.raises(LakewardError):
            tables.load(other, NAME)
        assert make_table(other).location.startswith(f"file://{tmp_path}/elsewhere/")
    with open_at(made_url, tmp_path) as registry:
        assert tables.load(registry, NAME).location.startswith(f"file://{tmp_path}/warehouse/")


def test_a_shared_registry_says_where_its_warehouse_is_and_a_copy_of_a_file_does_not(
    made_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_at(made_url, tmp_path) as registry:
        made = registry.warehouse
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    if made_url.startswith("postgresql"):
        with open_registry(Settings(registry=made_url)) as found:
            assert found.warehouse == made
    else:
        with pytest.raises(InvalidSetting, match="LAKEWARD_WAREHOUSE"):
            open_registry(Settings(registry=made_url))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_threads_that_open_a_new_registry_at_once_share_one_warehouse(made_url: str, tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def work(_: int) -> str:
        together.wait()
        with open_at(made_url, tmp_path) as registry:
            return registry.warehouse.warehouse_uuid

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(work, range(4)))) == 1


def test_each_handle_is_an_owner_of_its_own(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as first, open_at(made_url, tmp_path) as second:
        assert first.owner != second.owner


def test_versions_are_remembered_and_never_wrong(registry: Registry) -> None:
    table = make_table(registry)
    with registry.database.read() as connection:
        first = registry.metadata_version(connection, table.table_id, 1)
        assert registry.metadata_version(connection, table.table_id, 1) is first
        assert registry.metadata_version(connection, table.table_id, 2) is None
        assert registry.metadata_version(connection, 99, 1) is None


def test_a_closed_registry_may_be_closed_again(made_url: str, tmp_path: Path) -> None:
    registry = open_at(made_url, tmp_path)
    intents.open_intent(registry, make_table(registry))
    registry.close()
    registry.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "lakeward-leases" and thread.is_alive()]


def test_a_registry_that_is_not_reachable_says_so_and_what_to_check() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RegistryUnavailable, match=r"check that it runs and that the address is right") as refused:
        open_registry(Settings(registry=f"postgresql://me:SECRET@127.0.0.1:{port}/lake", warehouse="/nowhere"))
    assert f"127.0.0.1:{port}" in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_an_unknown_database_or_user_is_named(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.url.set(database="no_such_database").render_as_string(hide_password=False)
    with pytest.raises(RegistryUnavailable, match="no_such_database"):
        open_at(url, tmp_path)


@pytest.mark.parametrize("where", ["/proc/no/registry.db", "/dev/null/registry.db"])
def test_a_file_that_cannot_be_made_is_named(where: str, tmp_path: Path) -> None:
    with pytest.raises(RegistryUnavailable, match=where.rpartition("/")[0]):
        open_registry(Settings(registry=where, warehouse=str(tmp_path)))


def test_a_file_that_is_no_registry_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "holiday.jpg"
    file.write_bytes(b"\xff\xd8\xff" * 1000)
    with pytest.raises(LakewardError, match=r"holiday\.jpg"):
        open_registry(Settings(registry=str(file), warehouse=str(tmp_path / "w")))
    assert file.read_bytes() == b"\xff\xd8\xff" * 1000


def test_a_new_warehouse_that_cannot_be_written_is_refused_before_it_is_registered(
    made_url: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    for where in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/warehouse")):
        with pytest.raises(LakewardError, match=str(where)):
            open_at(made_url, tmp_path, warehouse=str(where))
    with open_at(made_url, tmp_path) as registry:
        assert len(rows_of(registry, "warehouses")) == 1


def test_a_read_only_warehouse_is_refused_as_such(made_url: str, tmp_path: Path) -> None:
    with pytest.raises(WarehouseNotWritable, match="check owner, permissions and mount"):
        open_at(made_url, tmp_path, warehouse="/sys/warehouse")


def test_the_registry_s_columns_hold_no_setting_that_is_secret(made_url: str, tmp_path: Path) -> None:
    secrets = {"token": "SECRET-token", "s3_secret_key": "SECRET-key", "s3_access_key": "SECRET-id"}
    with open_at(made_url, tmp_path, **secrets) as registry:
        table = make_table(registry)
        register(registry, table, [1])
        intents.open_intent(registry, table)
        for name in schema.metadata.tables:
            assert "SECRET" not in repr(rows_of(registry, name)), name
        assert "SECRET-token" not in repr(registry.settings)
        assert "SECRET-key" not in repr(registry.settings)


PROCESS = """
import sys
from pathlib import Path
from tests.support.registries import open_at, register
from lakeward.tables import tables
with open_at(sys.argv[1], Path(sys.argv[2])) as registry:
    table = tables.load(registry, "sales.orders")
    for number in range(25):
        register(registry, table, [number], partition=f"p{number % 3}")
"""


def test_four_threads_and_two_processes_on_one_registry_are_counted_exactly(made_url: str, tmp_path: Path) -> None:
    with open_at(made_url, tmp_path) as registry:
        table = make_table(registry, partition_by=["name"])
        command = [sys.executable, "-c", PROCESS, made_url, str(tmp_path)]
        processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]

        def work(thread: int) -> None:
            for number in range(25):
                register(registry, table, [thread, number], partition=f"p{number % 3}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert [process.wait(timeout=100) for process in processes] == [0, 0]
        found = tables.load(registry, NAME)
        assert (found.file_count, found.row_count) == (6 * 25, 4 * 25 * 2 + 2 * 25)
        assert_exact(registry, table)


@pytest.mark.on("postgresql")
def test_a_connection_that_was_cut_is_replaced_without_anybody_noticing(
    registry: Registry, postgres_server: PostgresServer
) -> None:
    table = make_table(registry)
    with postgres_server.connect() as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakeward'")
    register(registry, table, [1])
    assert tables.load(registry, NAME).row_count == 1


@pytest.mark.on("postgresql")
def test_a_database_that_goes_away_in_a_transaction_is_not_reachable(
    registry: Registry, postgres_server: PostgresServer
) -> None:
    make_table(registry)
    with pytest.raises(RegistryUnavailable), registry.database.transaction() as connection:
        with postgres_server.connect() as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakeward'")
        connection.execute(sa.text("SELECT 1"))
    assert tables.load(registry, NAME).version == 1


def test_too_many_threads_are_told_so_in_our_words(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = registry.database.engine.pool
    assert isinstance(pool, sa.pool.QueuePool)
    monkeypatch.setattr(pool, "_timeout", 0.05)
    monkeypatch.setattr(pool, "_max_overflow", 0)
    with ExitStack() as held, pytest.raises(RegistryUnavailable, match="too many threads use it at once"):
        for _ in range(pool.size() + 1):
            held.enter_context(registry.database.read())


def test_a_warehouse_inside_or_around_another_is_refused(made_url: str, tmp_path: Path) -> None:
    """The outer one's clean-up would delete what is the inner one's."""
    with open_at(made_url, tmp_path / "a"):
        pass
    for folder in (tmp_path / "a" / "warehouse" / "inner", tmp_path / "a"):
        settings = Settings(registry=made_url, warehouse=str(folder), warehouse_name="second")
        with pytest.raises(InvalidSetting, match="choose a folder apart"):
            open_registry(settings)
    with open_at(made_url, tmp_path / "ab", warehouse_name="second"):
        pass
