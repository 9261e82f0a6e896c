import lakeward

with lakeward.connect("lakehouse/registry.db", "lakehouse/warehouse") as lake:
    lake.create_table(
        "shop.orders",
        {"id": "long", "city": "string", "amount": "decimal(12,2)", "day": "date"},
        partition_by=["day"],
    )
    spark = lake.spark()
    orders = spark.sql("""
        SELECT id, if(id % 3 = 0, 'Oslo', 'Lima') AS city, cast(id * 1.5 AS decimal(12,2)) AS amount,
               date_add(date'2026-01-01', cast(id % 2 AS int)) AS day
        FROM range(1000)""")

    done = lake.append("shop.orders", orders, batch=("orders", "batch 1"))
    print(f"registered {done.rows} rows in {len(done.files)} files")  # committed: one SQL transaction

    spark.sql("SELECT city, sum(amount) FROM shop.orders GROUP BY city").show()  # the snapshot is made here
    print(lake.scan("shop.orders", ["id"], filter="city = 'Oslo'").read_all().num_rows, "orders from Oslo")
