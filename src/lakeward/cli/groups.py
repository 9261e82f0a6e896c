"""Consumer groups: how far they have read, and how to set that."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.command import Context
from lakeward.cli.render import show_record, show_rows
from lakeward.cli.shared import log_store
from lakeward.cli.times import with_zone
from lakeward.errors import InvalidInput
from lakeward.log.records import Topic

if TYPE_CHECKING:
    from lakeward.lake import Lake

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]


def list_(context: Context) -> None:
    """List the groups, and how far behind they are."""
    with log_store(context) as store:
        lags = {group: store.lag(group) for group in store.list_consumer_groups()}
    rows = [
        {"group": group, "topics": sorted({each.topic for each in lag}), "lag": sum(each.lag for each in lag)}
        for group, lag in lags.items()
    ]
    show_rows("groups", rows, ("group", "topics", "lag"), to=context)


def show(context: Context, group: GroupArgument) -> None:
    """Show how far a group has read in each partition of its topics."""
    with log_store(context) as store:
        found = store.lag(group)
    columns = ("topic", "partition_id", "committed_offset", "high_watermark", "lag")
    show_rows("partitions", found, columns, to=context)


def reset(
    context: Context,
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    to: Annotated[
        str, typer.Option("--to", help="earliest, latest, an offset, or a time such as 2026-01-02T03:04:05Z.")
    ],
    partition: Annotated[int | None, typer.Option("--partition", help="Only this one.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be.")] = False,
) -> None:
    """Set where a group reads on in a topic.

    Shows what would change; --execute does it. The group's consumers should not run meanwhile.
    """
    from lakeward.log import groups, topics

    with context.lake() as lake:
        found = topics.load(lake.registry, topic)
        partitions = topics.list_partitions(lake.registry, found)
        known = [each for each in partitions if partition in (None, each.partition_id)]
        if not known:
            raise InvalidInput(f"{topic} has no partition {partition}")
        offsets = _offsets(
            lake, found, {each.partition_id: (each.log_start_offset, each.high_watermark) for each in known}, to
        )
        rows = [
            {"partition_id": number, "now": groups.committed(lake.registry, group, found, number), "then": offset}
            for number, offset in offsets.items()
        ]
        if execute:
            groups.commit_read(lake.registry, group, [(found, offsets)])
    if context.json:
        show_record({"group": group, "topic": topic, "executed": execute, "offsets": rows}, to=context)
        return
    show_rows("partitions", rows, ("partition_id", "now", "then"), to=context)
    print("\ndone" if execute else "\nnothing was changed; --execute does it")


def _offsets(lake: Lake, topic: Topic, ends: dict[int, tuple[int, int]], to: str) -> dict[int, int]:
    """An offset for each partition. Raises InvalidInput."""
    from lakeward.log.consumer import offset_at

    if to == "earliest":
        return {number: start for number, (start, _) in ends.items()}
    if to == "latest":
        return {number: end for number, (_, end) in ends.items()}
    if to.isdecimal():
        return dict.fromkeys(ends, int(to))
    try:
        time = with_zone(datetime.fromisoformat(to), f"--to {to!r}")
    except ValueError:
        raise InvalidInput(
            f"--to {to!r} is not earliest, latest, an offset or a time such as 2026-01-02T03:04:05Z"
        ) from None
    return {number: offset_at(lake.registry, topic, number, time) for number in ends}


def delete(context: Context, group: GroupArgument) -> None:
    """Forget a group and what it has committed."""
    with log_store(context) as store:
        store.delete_consumer_group(group)
    show_record({"deleted": group}, to=context)
