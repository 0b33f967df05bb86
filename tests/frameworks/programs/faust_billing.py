"""Faust: `faust -A faust_billing worker`. The table's changelog is a compacted topic."""

import os

import faust

app = faust.App(
    "faust",
    broker=f"kafka://{os.environ['KAFKA']}",
    topic_partitions=2,
    broker_commit_interval=0.5,
    stream_recovery_delay=1.5,
)
orders = app.topic("faust-orders", key_type=bytes, value_type=int)
bills = app.topic("faust-bills", value_type=dict)
orders_of = app.Table("orders_of", key_type=bytes, value_type=int, default=int)


@app.agent(orders)
async def bill(stream: faust.Stream[int]) -> None:
    async for customer, order in stream.items():
        orders_of[customer] += 1
        await bills.send(key=customer, value={"order": order, "number": orders_of[customer]})
