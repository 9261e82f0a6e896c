"""Astha: from a commit to on_event, in this process and from another one; events a second to five components; what it costs
when nothing happens; and how much memory a long queue takes.

Latency is from the moment at which COMMIT has returned to the call of on_event, of the compactor's place, with all five
places taken by components that only note the time. SQLite is durable, PostgreSQL has fsync off.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from common import Options, Report, Writer, lake_in, main, percentile

from lakeward.astha import SUBSCRIPTIONS, Astha, AsthaConfig, Event
from lakeward.astha.events import WATCHED
from lakeward.astha.watcher import QUIET_SECONDS
from lakeward.db import schema

WAITING = 1_000_000
# Another process: it registers files, and says when each commit had returned.
CHILD = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from common import Writer, lake_in
from pathlib import Path

with lake_in(Path(sys.argv[2]), registry=sys.argv[3]) as lake:
    writer = Writer(lake, "bench.other")
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[4])):
        writer.register()
        print(json.dumps([f"{writer.file.path}-{writer.count - 1}", time.time()]), flush=True)
        time.sleep(0.02)
"""


class Component:
    """Notes when it was told of which file."""

    version = "1"

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: dict[str, float] = {}
        self.count = 0

    def get_subscribed_tables(self) -> tuple[Any, ...]:
        return tuple(WATCHED[name] for name in sorted(SUBSCRIPTIONS[self.name]))

    def on_event(self, event: Event[Any]) -> None:
        self.count += 1
        if event.table == "table_files":
            self.told[event.data.file_path] = time.time()

    def on_health(self) -> bool:
        return True

    def on_refresh(self) -> None:
        pass


def run(options: Options, report: Report) -> None:
    from tests.support import postgres

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    _measure(options, report, "SQLite", options.folder / "registry.db")
    with postgres.running_server() as server:
        _measure(options, report, "PostgreSQL", server.create_database())
    _throughput(options, report)


def _components(lake: Any, config: AsthaConfig | None = None) -> tuple[Astha, dict[str, Component]]:
    astha = Astha(lake, config)
    components = {name: Component(name) for name in SUBSCRIPTIONS}
    for component in components.values():
        astha.register(component)
    return astha, components


def _measure(options: Options, report: Report, name: str, registry: Any) -> None:
    folder = options.folder / name
    with lake_in(folder, registry=registry) as lake:
        astha, components = _components(lake)
        with astha:
            _wait(lambda: all(each.status == "active" for each in astha.status().components))
            _latency(options, report, name, lake, components["compactor"])
            _other_process(options, report, f"{name}", folder, registry, components["compactor"])
            time.sleep(QUIET_SECONDS + 1)
            started, used = time.perf_counter(), time.process_time()
            time.sleep(options.pick(5, 20))
            share = (time.process_time() - used) / (time.perf_counter() - started) * 100
            report.add(f"{name}: share of a core when nothing happens", share, "%", "target 1")


def _latency(options: Options, report: Report, name: str, lake: Any, component: Component) -> None:
    writer = Writer(lake)
    committed: list[float] = []
    lake.registry.database.on_commit(lambda: committed.append(time.time()))
    times = []
    for _ in range(options.pick(500, 3_000)):
        writer.register()
        at, path = committed[-1], f"{writer.file.path}-{writer.count - 1}"
        _wait(lambda path=path: path in component.told)
        times.append(max(0.0, component.told[path] - at) * 1e3)
        time.sleep(0.002)
    report.add(f"{name}: commit to on_event in one process, p50", percentile(times, 50), "ms", "target 2")
    report.add(f"{name}: commit to on_event in one process, p99", percentile(times, 99), "ms", "target 5")


def _other_process(
    options: Options, report: Report, name: str, folder: Path, registry: Any, component: Component
) -> None:
    count = options.pick(200, 1_000)
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", CHILD, here, str(folder), str(registry), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("\n")
        child.stdin.flush()
        said = [json.loads(line) for line in child.stdout]
    _wait(lambda: said[-1][0] in component.told)
    times = [max(0.0, component.told[path] - at) * 1e3 for path, at in said]
    report.add(f"{name}: commit in another process to on_event, p50", percentile(times, 50), "ms")
    report.add(f"{name}: commit in another process to on_event, p99", percentile(times, 99), "ms", "target 100")


def _throughput(options: Options, report: Report) -> None:
    """Waiting rows of all kinds, in the mix that registrations make, to five components."""
    count = options.pick(100_000, WAITING)
    with lake_in(options.folder / "waiting") as lake:
        astha, _ = _components(lake)
        with astha:
            _wait(lambda: all(each.status == "active" for each in astha.status().components))
        Writer(lake).register(100)
        with lake.registry.database.transaction() as connection:
            feed = schema.registry_changes.name
            columns = "table_name, operation, table_id, data, changed_at"
            connection.exec_driver_sql(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= {count // 100}) "
                f"INSERT INTO {feed} ({columns}) SELECT {columns} FROM n, "
                f"(SELECT {columns} FROM {feed} ORDER BY sequence DESC LIMIT 100)"
            )
        astha, components = _components(lake)
        with lake.registry.database.read() as connection:
            feed = schema.registry_changes
            query = sa.select(feed.c.table_name, sa.func.count()).group_by(feed.c.table_name)
            waiting = {str(table): int(number) for table, number in connection.execute(query)}
        expected = sum(waiting.get(table, 0) for tables in SUBSCRIPTIONS.values() for table in tables)
        before = _memory()
        peak = [before]
        done = threading.Event()
        watcher = threading.Thread(target=_note_memory, args=(peak, done))
        watcher.start()
        started = time.perf_counter()
        with astha:
            _wait(lambda: sum(component.count for component in components.values()) >= expected, 600)
            elapsed = time.perf_counter() - started
        done.set()
        watcher.join()
        delivered = sum(component.count for component in components.values())
        report.add(f"{count:,} waiting rows: rows of the feed a second", count / elapsed, "/s")
        report.add(f"{count:,} waiting rows: events delivered a second", delivered / elapsed, "/s", "target 20,000")
        report.add(f"{count:,} waiting rows: memory added", peak[0] - before, "MB")


def _note_memory(peak: list[float], done: threading.Event) -> None:
    while not done.wait(0.05):
        peak[0] = max(peak[0], _memory())


def _memory() -> float:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def _wait(is_so: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s")
        time.sleep(0.0005)


if __name__ == "__main__":
    main(run, __doc__)
