"""Run by spark-submit on a cluster: append from the executors, read through the catalog, keep a log, merge what is small.

    spark-submit --master spark://host:7077 --packages ... on_a_cluster.py postgresql://user@host/registry s3://bucket/lake

Endpoint and keys of S3 come from LAKEWARD_S3_* variables of the driver. See docs/how-to/cluster.md.
"""

from __future__ import annotations

import json
import sys

import lakeward
from lakeward import MetadataStore, TopicConfig


def main(registry: str, warehouse: str, rows: int) -> None:
    with lakeward.connect(registry, warehouse) as lake:
        spark = lake.spark()  # the master, the interpreter and the rest are those that were submitted
        lake.create_table("shop.orders", {"id": "long", "name": "string"}, ["bucket(2, id)"], if_not_exists=True)
        # A row takes a moment, so that the work is spread over the cluster and can be watched.
        slow = "java_method('java.lang.Thread', 'sleep', 1L) = 'null'"  # what comes of a method that returns nothing
        frame = spark.range(0, rows, 1, 8).selectExpr("id", "concat('n', id % 7) AS name").where(slow)
        print("appending", flush=True)
        lake.append("shop.orders", frame, batch=("orders", "1"))
        result = {
            "master": spark.sparkContext.master,
            "driver_host": spark.conf.get("spark.driver.host"),
            "python": spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).first(),
            "rows": spark.table("lakeward.shop.orders").count(),
            "distinct": spark.table("shop.orders").select("id").distinct().count(),
        }
        topics = MetadataStore(lake)
        if "orders" not in [topic.name for topic in topics.list_topics()]:
            topics.create_topic(TopicConfig("orders", 2))
        lake.log.append("orders", spark.range(0, 100, 1, 4).selectExpr("cast(id AS string) AS value"))
        result["records"] = lake.log.read(spark, "orders").count()
        result["findings"] = len(lake.audit("shop.orders").findings)
    print(json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1_000)
