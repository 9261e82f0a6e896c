"""What registration adds to a Spark write: the write and the registration of one append, by the size of its files."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import folder, lake, median, show

ROWS_A_MEGABYTE = 31_000  # of the incompressible rows below, measured
SIZES = (1, 8, 32, 128)  # MB of one file


def main() -> None:
    figures: dict[str, float] = {}
    with folder() as at, lake(at) as opened:
        spark = opened.spark("local[1]", {"spark.driver.memory": "2g"})
        opened.create_table("bench.s", {"id": "long", "a": "double", "b": "double", "c": "double"})
        for size in SIZES:
            rows = spark.range(size * ROWS_A_MEGABYTE).selectExpr("id", "rand(1) a", "rand(2) b", "rand(3) c")
            results = [opened.append("bench.s", rows.coalesce(1)) for _ in range(6)][1:]
            overhead = [100 * r.seconds["register"] / r.seconds["write"] for r in results]
            name = f"{results[0].bytes / 1e6:.1f} MB in {len(results[0].files)} file"
            figures[f"{name}: Spark's write, ms"] = 1000 * median([r.seconds["write"] for r in results])
            figures[f"{name}: registration, ms"] = 1000 * median([r.seconds["register"] for r in results])
            figures[f"{name}: registration / write, %"] = median(overhead)
    show("What registration adds to a Spark write (SQLite, durable)", figures)


if __name__ == "__main__":
    main()
