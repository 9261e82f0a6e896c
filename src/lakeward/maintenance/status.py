"""How a lakehouse is, on one page: what runs, what waits, what failed, and what somebody should do about it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from lakeward.astha.status import load_status_in
from lakeward.db import dialect
from lakeward.log import groups
from lakeward.maintenance.sql import overview
from lakeward.registry import Registry

RUNS_SINCE = timedelta(hours=24)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """As of one moment, by the registry's clock. Sizes in bytes."""

    now: datetime
    registry: str  # without a password
    warehouse: str
    tables: int
    rows: int
    files: int
    bytes: int
    pending_files: int  # in no snapshot yet
    pending_bytes: int
    pending_tables: int
    pending_since: datetime | None  # registration of the oldest
    set_aside_files: int  # that no snapshot could take
    dead_writes: int  # whose writer is gone
    running_runs: int
    failed_runs: int  # in the last 24 hours
    open_errors: int
    dead_letters: int  # that wait, or are worked on
    components: list[dict[str, Any]]  # as `astha.load_status` gives them; None if none has ever run
    groups: list[dict[str, Any]]  # (group, lag in records) of consumers
    problems: list[str]  # each with what to do

    @property
    def ok(self) -> bool:
        return not self.problems


def status(registry: Registry) -> Status:
    """What runs, what waits, what failed, and what to do about it; only the registry is read."""
    with registry.database.read() as connection:
        now = dialect.now(connection)
        sizes: dict[str, Any] = {**overview.sizes(connection), **overview.pending(connection)}
        counts: dict[str, Any] = {
            "set_aside_files": overview.set_aside(connection),
            "dead_writes": overview.dead_writes(connection, now),
            "running_runs": overview.runs(connection, "running"),
            "failed_runs": overview.runs(connection, "failed", now - RUNS_SINCE),
            "open_errors": overview.open_errors(connection),
            "dead_letters": overview.dead_letters(connection),
        }
        lags = groups.lags(connection, registry)
        components = load_status_in(connection)
    return Status(
        now=now,
        registry=registry.database.shown_url,
        warehouse=registry.warehouse.location,
        **sizes,
        components=components,
        groups=[{"group": group, "lag": sum(each.lag for each in lag)} for group, lag in lags.items()],
        problems=[*_counted(counts), *_components(components)],
        **counts,
    )


# What is wrong where there is any of it, and the way out.
_PROBLEMS = {
    "set_aside_files": "{} files could not become part of a snapshot: `lakeward files TABLE --set-aside` says why",
    "dead_writes": "{} writes were left by writers that are gone: `lakeward recover` clears them",
    "open_errors": "{} errors are open: `lakeward errors list --status open`, then resolve or ignore them",
    "dead_letters": "{} dead letters wait: `lakeward dlq list`",
}


def _counted(counts: dict[str, int]) -> list[str]:
    return [text.format(f"{counts[name]:,}") for name, text in _PROBLEMS.items() if counts[name]]


def _components(components: list[dict[str, Any]]) -> list[str]:
    found = []
    dead = [each for each in components if each["status"] == "dead"]
    if dead:
        names, seen = ", ".join(each["name"] for each in dead), max(each["seen_at"] for each in dead)
        found.append(f"no process runs {names}, seen last at {seen:%Y-%m-%d %H:%M:%S}: `lakeward serve` does")
    for each in components:
        if each["status"] not in ("active", "dead"):
            found.append(f"component {each['name']} is {each['status']}: {each.get('reason')}")
        if each["parked"]:
            parked = f"{each['parked']:,}"
            found.append(
                f"component {each['name']} could not handle {parked} events: `lakeward astha parked` lists them"
            )
    return found
