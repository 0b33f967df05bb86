"""The load generator sends valid batches in sequence and counts only right answers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.loads.frames import PRODUCE_VERSION, FrameMaker
from bench.loads.window import AnswerError, Window
from bench.wire import TOPIC
from tidelog.protocol.framing import decode_request_header, encode_response_frame
from tidelog.protocol.hot import ProducePartitionResult, decode_produce_request, encode_produce_response
from tidelog.protocol.records import batch_crc_is_valid, decode_batch, read_batch_header
from tidelog.protocol.schema import ApiKey


def answer(correlation_id: int, *error_codes: int) -> bytes:
    """To a request with a batch for each of as many partitions as there are error codes, by default one."""
    codes = enumerate(error_codes or (0,))
    results = [(TOPIC, [ProducePartitionResult(index, code, 7, -1, 0) for index, code in codes])]
    body = encode_produce_response(PRODUCE_VERSION, results)
    return b"".join(encode_response_frame(ApiKey.PRODUCE, PRODUCE_VERSION, correlation_id, body))


def test_frames_are_valid_requests_with_consecutive_sequences_for_each_partition() -> None:
    maker = FrameMaker(42, 3, TOPIC, (5, 7), b"v" * 100, records=3)
    for number in range(3):
        frame = memoryview(maker.next_frame())
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, position = decode_request_header(frame[4:])
        assert (header.api_key, header.api_version) == (ApiKey.PRODUCE, PRODUCE_VERSION)
        assert header.correlation_id == number
        request = decode_produce_request(PRODUCE_VERSION, frame[4 + position :])
        ((topic, partitions),) = request.topics
        assert (request.acks, topic, [index for index, _ in partitions]) == (-1, TOPIC, [5, 7])
        for _, batch in partitions:
            assert batch is not None
            batch_header = read_batch_header(batch)
            assert batch_crc_is_valid(batch, batch_header)
            assert (batch_header.producer_id, batch_header.producer_epoch) == (42, 3)
            assert (batch_header.base_sequence, batch_header.record_count) == (3 * number, 3)
            assert [record.value for record in decode_batch(batch)] == [b"v" * 100] * 3


@pytest.mark.parametrize("records", [1, 77_777_777])
def test_the_crc_is_right_whatever_the_sequence_is(records: int) -> None:
    maker = FrameMaker(1, 0, TOPIC, (0,), b"v" * 300)
    maker._records = records
    for _ in range(300):
        frame = memoryview(maker.patched())
        request = decode_produce_request(PRODUCE_VERSION, frame[4 + decode_request_header(frame[4:])[1] :])
        batch = request.topics[0][1][0][1]
        assert batch is not None
        assert batch_crc_is_valid(batch, read_batch_header(batch))


def test_an_earlier_frame_is_not_changed_by_a_later_one() -> None:
    maker = FrameMaker(1, 0, TOPIC, (0,), b"v")
    first = maker.next_frame()
    copy = bytes(first)
    maker.next_frame()
    assert first == copy


def test_latency_runs_from_sending_to_the_answer() -> None:
    window = Window(TOPIC, 1, measure_from=0.0)
    window.sent(2, 1.0)
    assert window.received(answer(0), 1.5) == 1
    assert window.received(answer(1), 3.0) == 1
    assert window.latencies == [0.5, 2.0]
    assert window.in_flight == 0


def test_what_was_sent_before_the_measurement_does_not_count() -> None:
    window = Window(TOPIC, 1, measure_from=10.0)
    window.sent(1, 9.9)
    window.sent(1, 10.0)
    window.received(answer(0) + answer(1), 11.0)
    assert window.latencies == [1.0]


@given(st.lists(st.integers(0, 400), max_size=8))
def test_answers_are_found_however_their_bytes_are_cut(cuts: list[int]) -> None:
    window = Window(TOPIC, 1, measure_from=0.0)
    window.sent(5, 0.0)
    stream = b"".join(answer(number) for number in range(5))
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    completed = [window.received(stream[start:end], 1.0) for start, end in pairwise(bounds)]
    assert sum(completed) == 5
    assert window.in_flight == 0


def test_a_batch_that_is_refused_stops_the_load() -> None:
    window = Window(TOPIC, 2, measure_from=0.0)
    window.sent(2, 0.0)
    assert window.received(answer(0, 0, 0), 1.0) == 1
    with pytest.raises(AnswerError, match=r"errors \[0, 45\]"):
        window.received(answer(1, 0, 45), 1.0)


def test_an_answer_out_of_turn_stops_the_load() -> None:
    window = Window(TOPIC, 1, measure_from=0.0)
    window.sent(2, 0.0)
    with pytest.raises(AnswerError, match="expected answer 0, got 1"):
        window.received(answer(1), 1.0)


def test_an_answer_nobody_asked_for_stops_the_load() -> None:
    with pytest.raises(AnswerError):
        Window(TOPIC, 1, measure_from=0.0).received(answer(0), 1.0)
