"""Footers: deleting 100,000 of them while another process registers, and planning from the table against the objects.

Both ways find the live files in the registry and end with their footers in hand.
"""

from __future__ import annotations

import time

import msgspec
from common import Options, Report, Writer, forkserver, in_turn, lake_in, main, median, register_until, seconds, waits

from lakeward import Lake
from lakeward.arrow import scan
from lakeward.db import dialect
from lakeward.registry import intents
from lakeward.storage.parquet_footers import read_footer
from lakeward.tables import footers, registration, snapshots
from lakeward.tables.sql import footers as footer_store

PATHS = 100_000


def run(options: Options, report: Report) -> None:
    from tests.support import s3  # not above: the other processes need none of it

    _delete(options, report)
    with lake_in(options.folder / "local") as lake:
        _plan(lake, "local folder", options.pick(1_000, 10_000), report)
    with s3.running_server() as server:
        bucket = server.with_new_bucket()
        settings = {
            "warehouse": bucket.warehouse,
            "s3_endpoint": bucket.endpoint,
            "s3_access_key": bucket.access_key,
            "s3_secret_key": bucket.secret_key,
            "s3_region": bucket.region,
            "s3_path_style": True,
        }
        with lake_in(options.folder / "s3", **settings) as lake:
            _plan(lake, "S3 server on this machine", options.pick(200, 1_000), report)


def _delete(options: Options, report: Report) -> None:
    folder = options.folder / "delete"
    with lake_in(folder) as lake:
        writer = Writer(lake)
        paths = [f"{writer.file.path}-old-{i}" for i in range(PATHS)]
        with lake.registry.database.transaction() as connection:
            row = {
                "table_id": writer.table.table_id,
                "metadata": writer.file.footer,
                "metadata_size": len(writer.file.footer or b""),
                "insert_time": dialect.now(connection),
            }
            footer_store.insert(connection, [{"file_path": path, **row} for path in paths])
        context = forkserver()
        ready, stop, answers = context.Event(), context.Event(), context.Queue()
        other = context.Process(target=register_until, args=(folder, ready, stop, answers))
        other.start()
        ready.wait()
        time.sleep(1)
        begun = time.monotonic()
        taken = seconds(lambda: footers.delete_partition_metadata_batch(lake.registry, paths))
        ended = time.monotonic()
        time.sleep(1)
        stop.set()
        times = answers.get()
        other.join()
    report.add(f"delete {PATHS:,} footers, one process writing beside", taken, "s", "target 2")
    beside = [took for at, _, took in times if begun <= at <= ended]
    alone = [took for at, _, took in times if at < begun or at > ended]
    waits(report, "a registration while footers are deleted", beside)
    report.add("the same while nothing is deleted, longest", max(alone) * 1e3, "ms", "target 100 for the wait")


def _plan(lake: Lake, storage: str, count: int, report: Report) -> None:
    """Real objects, registered in one commit."""
    writer = Writer(lake)
    engine = lake.registry.engine(writer.table.location)
    content = engine.read(writer.file.path)
    intent = intents.open_intent(lake.registry, writer.table)
    files = [msgspec.structs.replace(writer.file, path=f"{intent.prefix}{i}.parquet") for i in range(count)]
    for file in files:
        engine.write(file.path, content)
    registration.register(lake.registry, writer.table, intent, files)

    def from_table() -> None:
        plan, _ = footers.plan(lake.registry, writer.table.identifier, scan.prepare)
        assert len(footers.loader(lake.registry, plan)([file.file_path for file in plan.files])) == count

    def from_objects() -> None:
        for file in snapshots.list_files(lake.registry, writer.table):
            read_footer(engine, file.file_path)

    table, objects = in_turn(3, from_table, from_objects)
    report.add(f"plan of {count:,} files from the table, {storage}", median(table) * 1e3, "ms")
    report.add(f"plan of {count:,} files from the objects, {storage}", median(objects) * 1e3, "ms")
    report.add(f"objects against the table, {storage}", median(objects) / median(table), "x")


if __name__ == "__main__":
    main(run, __doc__)
