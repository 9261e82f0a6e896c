"""What registration adds to a Spark write, for one file of 1 MB to 128 MB.

The write is Spark's, through Iceberg's writer without its commit, and declared by its intent; 'added' is the registration
against that write, within one append. Registry: SQLite, durable.
"""

from __future__ import annotations

from common import Options, Report, lake_in, main, median

ROW_BYTES = 24  # in the file: three random doubles that do not compress, and an id that does
SIZES = (1, 8, 32, 128)  # MB
COLUMNS = {"id": "long", "a": "double", "b": "double", "c": "double"}


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder) as lake:
        spark = lake.spark("local[2]", {"spark.driver.memory": "2g"})
        lake.create_table("bench.rows", COLUMNS)
        make = ["id", "rand(1) a", "rand(2) b", "rand(3) c"]
        for _ in range(3):  # the first writes pay for the session
            lake.append("bench.rows", spark.range(1_000).coalesce(1).selectExpr(*make))
        for size in SIZES:
            data = spark.range(size * 1_000_000 // ROW_BYTES).coalesce(1).selectExpr(*make)
            results = [lake.append("bench.rows", data) for _ in range(options.pick(3 if size > 100 else 5, 15))]
            made = results[0]
            name = f"{made.bytes / 1e6:.1f} MB"
            report.add(f"{name}: Spark's write, p50", median([r.seconds["write"] for r in results]) * 1e3, "ms")
            report.add(f"{name}: registration, p50", median([r.seconds["register"] for r in results]) * 1e3, "ms")
            added = median([r.seconds["register"] / r.seconds["write"] for r in results])
            report.add(f"{name}: added", added * 100, "%", "target 5, goal 1")
        spark.stop()


if __name__ == "__main__":
    main(run, __doc__)
