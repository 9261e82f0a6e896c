"""What a flush costs by the number of pending files, and how it grows with the number of snapshots."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import NAME, copies, folder, lake, median, one_file, register, seconds, show


def main() -> None:
    figures: dict[str, float] = {}
    with folder() as at, lake(at) as opened:
        for pending in (1, 10, 100, 1000):
            name = f"bench.p{pending}"
            table, file = one_file(opened, name)
            opened.flush(name)
            times = []
            for i in range(5 if pending == 1000 else 9):
                register(opened, table, copies(file, pending, i))
                times.append(seconds(lambda name=name: opened.flush(name)))  # type: ignore[misc]
            figures[f"flush of {pending} pending files, ms"] = 1000 * median(times)
        figures["flush with nothing pending, ms"] = 1000 * median(
            [seconds(lambda: opened.flush(name)) for _ in range(50)]
        )
    snapshots = 1000 if "--full" in sys.argv else 300
    with folder() as at, lake(at) as opened:
        table, file = one_file(opened)
        times = []
        for i in range(snapshots):
            register(opened, table, copies(file, 1, i))
            times.append(seconds(lambda: opened.flush(NAME)))
        for at_snapshot in (10, 100, snapshots):
            figures[f"flush of 1 file at {at_snapshot} snapshots, ms"] = 1000 * median(
                times[at_snapshot - 10 : at_snapshot]
            )
        size = sum(info.size for info in opened.registry.engine(table.location).list(table.location + "/metadata/"))
        opened.registry.close()
    figures[f"metadata on the disk after {snapshots} snapshots, before any clean-up, MB"] = size / 1e6
    show("Flush (files of 20 columns, local folder)", figures)


if __name__ == "__main__":
    main()
