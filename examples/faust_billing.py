"""Faust: `faust -A faust_billing worker`.

Without a table: when Faust has recovered one, it lets the streams go on before it seeks to the committed
offsets (`Recovery` calls `resume_partitions`, then `perform_seek`), and loses records that it fetched before.
"""

import os

import faust

app = faust.App(
    "faust",
    broker=f"kafka://{os.environ['KAFKA']}",
    topic_partitions=2,
    broker_commit_interval=0.5,
)
orders = app.topic("faust-orders", key_type=bytes, value_type=int)
bills = app.topic("faust-bills", value_type=dict)


@app.agent(orders)
async def bill(stream: faust.Stream[int]) -> None:
    async for customer, order in stream.items():
        await bills.send(key=customer, value={"order": order})
