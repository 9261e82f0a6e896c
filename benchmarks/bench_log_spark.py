"""Reading the log by Spark: lake.log.read and the data source, against spark.read.parquet on the same files in turn.

Records are orders as JSON of about 300 bytes, with keys. Every read gives all columns to a sink that drops them.
"""

from __future__ import annotations

import pyarrow as pa
from common import Options, Report, in_turn, lake_in, main, median

from lakeward import Lake, MetadataStore, TopicConfig

PARTITIONS = 4
VALUE = (
    '{"id":%d,"customer":{"id":%d,"name":"customer number %d","city":"Oslo","country":"NO"},"status":"shipped",'
    '"items":[{"sku":"SKU-%d","count":%d,"price":%d.50},{"sku":"SKU-%d","count":1,"price":12.25}],'
    '"total":%d.75,"currency":"NOK","channel":"web","note":"leave it at the door, please"}'
)


def run(options: Options, report: Report) -> None:
    records = options.pick(400_000, 4_000_000)
    with lake_in(options.folder / "log") as lake:
        _fill(lake, records)
        spark = lake.spark("local[2]")
        files = [s.location for p in range(PARTITIONS) for s in MetadataStore(lake).get_segments("orders", p)]

        def drop(frame: object) -> None:
            frame.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]

        def parquet() -> None:
            drop(spark.read.parquet(*files))

        def read() -> None:
            drop(lake.log.read(spark, "orders"))

        def source() -> None:
            reader = spark.read.format("lakeward").option("registry", lake.settings.registry)
            drop(reader.option("warehouse", lake.settings.warehouse).option("subscribe", "orders").load())

        in_turn(2, parquet, read)  # warm
        plain, ours = in_turn(options.pick(3, 7), parquet, read)
        (python,) = in_turn(options.pick(1, 3), source)
        report.add(f"{records:,} records in {len(files)} files: spark.read.parquet", median(plain) * 1e3, "ms")
        report.add("lake.log.read", median(ours) * 1e3, "ms")
        report.add("lake.log.read against spark.read.parquet", median(ours) / median(plain), "x", "target 1.15")
        report.add("format('lakeward')", median(python) * 1e3, "ms")
        report.add("format('lakeward') against spark.read.parquet", median(python) / median(plain), "x")
        spark.stop()


def _fill(lake: Lake, records: int) -> None:
    MetadataStore(lake).create_topic(TopicConfig("orders", PARTITIONS))
    step = records // 4
    for start in range(0, records, step):
        ids = range(start, start + step)
        values = [VALUE % (i, i % 9973, i % 9973, i % 401, i % 7, i % 1000, i % 97, i % 5000) for i in ids]
        lake.log.append("orders", pa.table({"key": [str(i) for i in ids], "value": values}))


if __name__ == "__main__":
    main(run, __doc__)
