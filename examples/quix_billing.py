"""Quix Streams: `python quix_billing.py`. The state's changelog is a compacted topic. Each order is billed
exactly once: a bill, the state and the offset of its order are committed in one transaction.
"""

import os

from quixstreams import Application, State

app = Application(
    os.environ["KAFKA"],
    consumer_group="quix",
    auto_offset_reset="earliest",
    commit_interval=0.5,
    processing_guarantee="exactly-once",
)
orders = app.topic("quix-orders", value_deserializer="json")
bills = app.topic("quix-bills", value_serializer="json")


def bill(order: int, state: State) -> dict[str, int]:
    number = state.get("number", 0) + 1
    state.set("number", number)
    return {"order": order, "number": number}


app.dataframe(orders).apply(bill, stateful=True).to_topic(bills)

if __name__ == "__main__":
    app.run()
