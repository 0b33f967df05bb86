"""FastStream: `faststream run faststream_billing:app`. An order is committed after its bill is stored."""

import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ["KAFKA"], enable_idempotence=True)
app = FastStream(broker)


@broker.subscriber(
    "faststream-orders", group_id="faststream", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
)
@broker.publisher("faststream-bills")
async def bill(order: int) -> dict[str, int]:
    return {"order": order}
