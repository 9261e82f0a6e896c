"""Flush: what making a snapshot of 1, 10, 100 and 1,000 pending files costs, and how it grows with the snapshots."""

from __future__ import annotations

from common import Options, Report, Writer, lake_in, main, median, seconds

from lakeward.snapshots import snapshot_commit

SIZES = {1: 20, 10: 20, 100: 10, 1_000: 5}  # pending files: repeats
WINDOW = 10


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder / "sizes") as lake:
        for pending, repeats in SIZES.items():
            writer = Writer(lake, f"bench.pending_{pending}")
            snapshot_commit.flush(lake.registry, writer.table.table_id)  # the table's first metadata file
            times = [_flush(writer, pending) for _ in range(repeats)]
            report.add(f"flush of {pending:,} pending files, p50", median(times) * 1e3, "ms")
        nothing = [seconds(lambda: snapshot_commit.flush(lake.registry, writer.table.table_id)) for _ in range(100)]
        report.add("flush with nothing pending, p50", median(nothing) * 1e3, "ms")
    with lake_in(options.folder / "growth") as lake:
        writer, last = Writer(lake), options.pick(300, 1_000)
        times = [_flush(writer, 1) for _ in range(last)]
        for snapshots in sorted({10, 100, 300, last}):
            window = times[snapshots - WINDOW : snapshots]
            report.add(f"flush of 1 file, snapshots up to {snapshots:,}, p50", median(window) * 1e3, "ms")
        report.add(f"flush of 1 file, longest of {last:,}", max(times) * 1e3, "ms")
        objects = lake.registry.engine(writer.table.location).list(writer.table.location + "/metadata/")
        size = sum(info.size for info in objects)
        report.add(f"metadata objects after {last:,} snapshots, none cleaned up", size / 1e6, "MB")


def _flush(writer: Writer, pending: int) -> float:
    writer.register(pending)
    return seconds(lambda: snapshot_commit.flush(writer.registry, writer.table.table_id))


if __name__ == "__main__":
    main(run, __doc__)
