"""Hand-tuned Produce and Fetch: the two messages that carry records, as NamedTuples over memoryviews.

Owns: only the names. `produce`, `fetch_request` and `fetch_response` are the codecs, `wire` their shared
primitives; `offset_commits` stands apart. Invariants: equal to protocol.schema byte for byte and value for
value (tests/property/test_hot.py checks it); record bytes are never copied; malformed input raises only
ProtocolError.
"""

from tidelog.protocol.hot.fetch_request import (
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    decode_fetch_request_steps,
    encode_fetch_request,
)
from tidelog.protocol.hot.fetch_response import (
    NO_EPOCH_END_OFFSET,
    FetchPartitionResult,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response_steps,
)
from tidelog.protocol.hot.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    decode_produce_request,
    decode_produce_request_steps,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
    encode_produce_response_steps,
)
from tidelog.protocol.hot.produce_shape import ProduceShape
from tidelog.protocol.hot.wire import NO_LEADER

__all__ = [
    "NO_EPOCH_END_OFFSET",
    "NO_LEADER",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "ProducePartitionResult",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceShape",
    "decode_fetch_request",
    "decode_fetch_request_steps",
    "decode_fetch_response",
    "decode_produce_request",
    "decode_produce_request_steps",
    "decode_produce_response",
    "encode_fetch_request",
    "encode_fetch_response_steps",
    "encode_produce_request",
    "encode_produce_response",
    "encode_produce_response_steps",
]
