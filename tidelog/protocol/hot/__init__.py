"""Produce and Fetch: the two messages that carry records, as NamedTuples over memoryviews.

What is written by hand here saves more than a twentieth of a whole request; all else is `protocol.schema`.
Invariants: equal to it byte for byte and value for value (tests/property/test_hot.py checks it); record bytes
are never copied; malformed input raises only ProtocolError.
"""

from tidelog.protocol.hot.fetch import (
    NO_EPOCH_END_OFFSET,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    decode_fetch_request_steps,
    decode_fetch_response,
    encode_fetch_request,
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
    with_node_endpoints,
)
from tidelog.protocol.hot.produce_shape import ProduceShape
from tidelog.protocol.hot.wire import FIRST_BY_ID, NO_LEADER, NodeEndpoint, TopicKey
