"""Long work in steps: a message of any shape is read and written with a yield for each step's worth of it."""

from collections.abc import Mapping
from types import GeneratorType
from typing import Any

import pytest

from tidelog.protocol import hot
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.schema import (
    ApiKey,
    decode_request,
    encode_request,
    encode_response,
    request_codec,
    response_codec,
)
from tidelog.protocol.steps import ELEMENTS_PER_STEP, Pace, Steps, begin, each, finish, in_steps
from tidelog.protocol.varint import unsigned_varint

STEPS = 5
COUNT = STEPS * ELEMENTS_PER_STEP


def taken(steps: Steps[Any]) -> tuple[Any, int]:
    """The result and how often the others had their turn before it."""
    yields = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, yields
        yields += 1


def test_a_step_is_over_when_its_elements_are_spent_and_the_next_begins() -> None:
    pace = Pace()
    assert [pace.spent() for _ in range(2 * ELEMENTS_PER_STEP)].count(True) == 2
    assert pace.spent(ELEMENTS_PER_STEP)
    assert not pace.spent()


def test_work_that_fits_into_one_step_is_done_by_its_beginning() -> None:
    assert begin(each(str, range(3), Pace())) == ["0", "1", "2"]
    assert begin("a result already") == "a result already"


def test_longer_work_goes_on_after_its_first_step_until_it_is_finished() -> None:
    steps = begin(each(str, range(COUNT), Pace()))
    assert not isinstance(steps, list)
    assert finish(steps) == [str(number) for number in range(COUNT)]


REQUESTS: list[tuple[ApiKey, int, Mapping[str, Any]]] = [
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"] * COUNT}),
    (ApiKey.DELETE_TOPICS, 3, {"topic_names": ["t"] * COUNT}),
    (ApiKey.METADATA, 12, {"topics": [{"name": "t"}] * COUNT}),
    (
        ApiKey.LIST_OFFSETS,
        7,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}] * COUNT}]},
    ),
    (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
                for keys in [None] * (COUNT // 2) + [["k"]] * (COUNT // 4)
            ]
        },
    ),
]


@pytest.mark.parametrize(("api_key", "version", "values"), REQUESTS)
def test_a_long_request_is_read_in_steps_whatever_its_shape(
    api_key: ApiKey, version: int, values: Mapping[str, Any]
) -> None:
    body = encode_request(api_key, version, values)
    request, yields = taken(request_codec(api_key, version).decode_steps(body))
    assert request == decode_request(api_key, version, body)
    assert yields >= STEPS


def test_a_short_request_is_read_in_its_first_step() -> None:
    for count in (2, 20):
        body = encode_request(ApiKey.METADATA, 12, {"topics": [{"name": "t"}] * count})
        request = decode_request(ApiKey.METADATA, 12, body)
        assert begin(request_codec(ApiKey.METADATA, 12).decode_steps(body)) == request


def test_a_message_without_long_arrays_has_no_steps() -> None:
    join = encode_request(ApiKey.JOIN_GROUP, 9, {"protocols": [{"name": "range", "metadata": b"x"}]})
    sync = encode_request(ApiKey.SYNC_GROUP, 5, {"group_id": "g" * 20_000, "assignments": []})
    assert not isinstance(request_codec(ApiKey.JOIN_GROUP, 9).decode_steps(join), GeneratorType)
    assert isinstance(request_codec(ApiKey.SYNC_GROUP, 5).decode_steps(sync), GeneratorType)
    encoded = response_codec(ApiKey.HEARTBEAT, 4).encode_steps({"error_code": 27})
    assert encoded == bytes.fromhex("00000000 001b 00")
    assert finish(in_steps("a result already")) == "a result already"


def test_a_long_response_is_written_in_steps() -> None:
    partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    values = {"topics": [{"name": "t", "partitions": [partition] * (COUNT // 10)}] * 10}
    body, yields = taken(response_codec(ApiKey.METADATA, 12).encode_steps(values))
    assert body == encode_response(ApiKey.METADATA, 12, values)
    assert yields >= STEPS


def test_unknown_tagged_fields_and_long_texts_count_as_work_too() -> None:
    tags = unsigned_varint(ELEMENTS_PER_STEP) + b"".join(
        unsigned_varint(1000 + number) + b"\0" for number in range(ELEMENTS_PER_STEP)
    )
    _, yields = taken(request_codec(ApiKey.CREATE_PARTITIONS, 3).decode_steps(tagged_partitions(tags)))
    assert yields >= STEPS
    names = ["x" * 30_000] * (COUNT // 25)
    _, yields = taken(request_codec(ApiKey.DELETE_TOPICS, 5).decode_steps(deletion(names)))
    assert yields >= STEPS


def tagged_partitions(tags: bytes) -> bytes:
    """A CreatePartitions request of `STEPS` topics, each with these tagged fields."""
    topic = b"\2t" + (2).to_bytes(4, "big") + b"\0" + tags
    return unsigned_varint(STEPS + 1) + topic * STEPS + bytes(4) + b"\0" + b"\0"


def deletion(names: list[str]) -> bytes:
    return encode_request(ApiKey.DELETE_TOPICS, 5, {"topic_names": names})


def test_more_tagged_fields_than_anybody_needs_are_refused() -> None:
    body = b"\2a\2b" + unsigned_varint(2_000) + b"\0\0" * 2_000
    with pytest.raises(ProtocolError, match="at most 1024 tagged fields, got 2000"):
        decode_request(ApiKey.API_VERSIONS, 3, body)


def fault(body: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        finish(request_codec(ApiKey.DELETE_TOPICS, 5).decode_steps(body))
    return str(caught.value)


def test_a_fault_in_a_later_step_has_its_path() -> None:
    whole = deletion(["t"] * COUNT)
    assert f"topic_names[{COUNT - 1}]: expected a string" in fault(whole[:-6])


def test_produce_and_fetch_are_read_and_written_in_steps() -> None:
    produce = hot.ProduceRequest(None, 1, 1, [("t", [(index, b"x") for index in range(COUNT)])])
    body = memoryview(b"".join(bytes(part) for part in hot.encode_produce_request(9, produce)))
    steps = hot.decode_produce_request_steps(9, body)
    assert not isinstance(steps, hot.ProduceRequest)
    request, yields = taken(steps)
    assert (request, yields >= STEPS) == (hot.decode_produce_request(9, body), True)

    partitions = [hot.FetchPartition(0, -1, 0, -1, -1, 1)] * COUNT
    fetch = hot.FetchRequest(-1, 0, 1, 1, 0, 0, -1, [("t", partitions)])
    fetch_body = hot.encode_fetch_request(12, fetch)
    asked, yields = taken(hot.decode_fetch_request_steps(12, fetch_body))
    assert (asked, yields >= STEPS) == (hot.decode_fetch_request(12, fetch_body), True)

    results = [("t", [hot.ProducePartitionResult(index, 0) for index in range(COUNT)])]
    answer = hot.encode_produce_response_steps(9, results)
    assert not isinstance(answer, bytes)
    encoded, yields = taken(answer)
    assert (encoded, yields >= STEPS) == (hot.encode_produce_response(9, results), True)

    found = [("t", [hot.FetchPartitionResult(index, 0) for index in range(COUNT)])]
    response = hot.FetchResponse(0, 0, 0, found)
    buffers, yields = taken(hot.encode_fetch_response_steps(12, response))
    assert (buffers, yields >= STEPS) == (finish(hot.encode_fetch_response_steps(12, response)), True)
