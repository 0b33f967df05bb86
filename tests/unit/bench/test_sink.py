"""The sink finds where requests end, and its canned answers can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sink import FrameScanner, canned_frame
from bench.wire import TOPIC
from tidelog.protocol.framing import decode_response_header, encode_request_frame
from tidelog.protocol.hot import decode_produce_response
from tidelog.protocol.schema import ApiKey, decode_response


@given(st.lists(st.integers(0, 300), max_size=6), st.lists(st.integers(1, 200), max_size=10))
def test_requests_are_found_however_their_bytes_are_cut(sizes: list[int], cuts: list[int]) -> None:
    stream = b"".join(
        part
        for number, size in enumerate(sizes)
        for part in encode_request_frame(ApiKey.PRODUCE, 7, number, TOPIC, bytes(size))
    )
    scanner = FrameScanner()
    found: list[tuple[int, int, int]] = []
    position = 0
    for cut in [*cuts, len(stream)]:
        found += scanner.feed(memoryview(stream)[position : position + cut])
        position = min(position + cut, len(stream))
    assert found == [(ApiKey.PRODUCE, 7, number) for number in range(len(sizes))]


@pytest.mark.parametrize("version", [3, 7, 9, 11])
def test_a_canned_produce_answer_accepts(version: int) -> None:
    frame = canned_frame(ApiKey.PRODUCE, version, 9092)
    _, position = decode_response_header(ApiKey.PRODUCE, version, frame[4:])
    answer = decode_produce_response(version, memoryview(frame)[4 + position :])
    assert [(topic, result.error_code) for topic, (result,) in answer.topics] == [(TOPIC, 0)]


def test_canned_metadata_leads_back_to_the_sink() -> None:
    frame = canned_frame(ApiKey.METADATA, 12, 1234)
    _, position = decode_response_header(ApiKey.METADATA, 12, frame[4:])
    answer = decode_response(ApiKey.METADATA, 12, frame[4 + position :])
    assert [(broker.host, broker.port) for broker in answer.brokers] == [("127.0.0.1", 1234)]
    assert [topic.name for topic in answer.topics] == [TOPIC]
