"""How many connections a handle has: as many as the settings say, look-ups included, whatever the number of threads."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from lakeward.db.database import Database
from lakeward.log import topics
from lakeward.metadata import MetadataManager
from lakeward.ops import operation_statistics
from tests.support.registries import open_at

THREADS = 24


def test_threads_have_no_more_connections_than_the_settings_say_and_all_are_counted(
    made_pg_url: str, tmp_path: Path
) -> None:
    with open_at(made_pg_url, tmp_path, pool_size=3, pool_overflow=4) as registry:
        ready, done = threading.Barrier(THREADS + 1), threading.Event()

        def look() -> None:
            topics.get(registry, "none")
            ready.wait(60)
            done.wait(60)

        threads = [threading.Thread(target=look) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        try:
            with registry.database.read() as connection:
                backends = connection.exec_driver_sql(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lakeward'"
                ).scalar_one()
            used = operation_statistics.pool_use(registry)
        finally:
            done.set()
        for thread in threads:
            thread.join()
        assert backends <= 7
        assert used["size"] == 3 and used["lookups"] == 2


def test_a_given_engine_says_how_many_there_are(made_url: str) -> None:
    engine = sa.create_engine(made_url, poolclass=sa.pool.QueuePool, pool_size=2, max_overflow=1)
    with MetadataManager(engine) as manager:
        assert (manager.registry.settings.pool_size, manager.registry.settings.pool_overflow) == (2, 1)
        assert manager.get_sync_statistics()["connection_pool"]["size"] == 2
    engine.dispose()


def test_transactions_go_on_where_the_machine_has_no_thread_left(pg_url: str) -> None:
    database = Database(pg_url)
    before = threading.stack_size(1 << 46)  # more memory than there is: no thread starts
    try:
        for _ in range(2):
            with database.transaction() as connection:
                assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    finally:
        threading.stack_size(before)
        database.close()
