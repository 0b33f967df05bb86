"""A stream of Produce requests stores, answers and counts what dispatch does, and leaves the rest to it."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.net.peers import Peer, produce_frame, request_frame
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.handlers.produce_answers import SWEEP_MS
from tidelog.broker.handlers.produce_rules import ProduceRules
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.net.produce_stream import AwaitedProduce, ProduceStream
from tidelog.broker.net.request_queue import Waiting
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import FIRST_BY_ID, ProduceRequest, decode_produce_response, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

OPTIONAL_SERIES = re.compile(r"_(bucket|sum|created)[{ ]|^#|process_|python_|uptime|group_commit")


class Line:
    """A connection without a socket: `serve` does as a connection, with or without streams."""

    def __init__(self, asker: Asker, *, has_streams: bool) -> None:
        self.asker = asker
        self.dispatcher = Dispatcher(asker.handlers, asker.services.metrics, PeerEvents())
        self.state = asker.connection
        self.routes = self.dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED)
        self.stream: ProduceStream | None = None
        self.last_produce: tuple[object, ...] = ()
        self.streamed = 0
        self._has_streams = has_streams
        self._ready: dict[Waiting, asyncio.Event] = {}

    def topic_in(self, version: int) -> Any:
        """Topic t as this version of Produce names it."""
        topic = self.asker.services.catalog.topic("t")
        assert topic is not None
        return "t" if version < FIRST_BY_ID else topic.topic_id

    def answer_ready(self, pending: Waiting) -> None:
        self._ready.setdefault(pending, asyncio.Event()).set()

    def serve(self, *frames: bytes) -> Any:
        """The answer to a frame, or those to frames that arrive together."""
        views = [memoryview(frame)[4:] for frame in reversed(frames)]
        answers = []
        while views:
            answer: Any = None
            if self.stream is not None and self._has_streams:
                answer = self.stream.serve(views, 0.0)
                self.streamed += answer is not None
            if answer is None:
                answer = self.dispatcher.dispatch(self, views.pop(), 0.0)  # type: ignore[arg-type]
            answers.append(answer)
        return answers if len(frames) > 1 else answers[0]

    async def ready(self, answer: Any) -> bytes:
        if isinstance(answer, Waiting):
            if answer.answer is None:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self._ready.setdefault(answer, asyncio.Event()).wait()
            answer = answer.answer
        return b"".join(answer)

    def counts(self) -> list[str]:
        lines = self.asker.services.metrics.render().decode().splitlines()
        return [line for line in lines if not OPTIONAL_SERIES.search(line)]


@pytest.fixture
async def lines(tmp_path: Path) -> AsyncIterator[list[Line]]:
    """Over two brokers that differ only in that the first one serves streams."""
    made = []
    clock = Clock()
    for name in ("streams", "plain"):
        config = BrokerConfig(data_dir=tmp_path / name)
        asker = Asker(await open_services(config, Metrics(), clock), clock)
        made.append(Line(asker, has_streams=name == "streams"))
        await asker.create("t", 2)
        for _ in range(2):
            await asker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    yield made
    for line in made:
        await line.asker.services.close()


def batches() -> list[tuple[int, bytes]]:
    """(partition, batch) of producers: what is stored, what is known already, all kinds of mistakes."""
    sent = deque((0, make_batch(b"%d" % n, producer_id=0, epoch=0, sequence=n)) for n in range(8))
    sent.extend((n % 2, make_batch(b"other %d" % n)) for n in range(3))
    known = ((7, 0, 0), (0, 0, 0), (20, 0, 0), (0, 3, 0), (1, 0, 0), (5, 0, 1), (0, 0, 9))
    for sequence, epoch, producer_id in known:
        sent.append((0, make_batch(b"v", producer_id=producer_id, epoch=epoch, sequence=sequence)))
    damaged = bytearray(make_batch(b"v"))
    damaged[-1] ^= 1
    builder = RecordBatchBuilder()
    for number in range(3):
        builder.append(1_700_000_000_000 + number, b"key", b"value %d" % number)
    packed = bytes(builder.build(Compression.LZ4))
    plain = make_batch(b"v")
    sent.extend([(0, bytes(damaged)), (1, packed), (5, plain), (0, plain[:40]), (1, plain + plain)])
    sent.extend([(1, make_batch(*[b"v"] * 40)), (0, make_batch(b"v", timestamp_ms=-1)), (1, plain)])
    return list(sent)


async def test_a_stream_answers_and_counts_as_dispatch_does(lines: list[Line]) -> None:
    answers = []
    for line in lines:
        frames = [
            produce_frame(version, [(line.topic_in(version), [part])], acks, number)
            for acks, version in ((-1, 7), (-1, 12), (1, 9), (2, 8), (-1, 13))
            for number, part in enumerate(batches())
        ]
        own_id = line.topic_in(13).bytes
        answers.append([(await line.ready(line.serve(frame))).replace(own_id, b"id") for frame in frames])
    assert answers[0] == answers[1]
    streaming, plain = lines
    assert streaming.streamed > 30
    assert plain.streamed == 0
    assert streaming.counts() == plain.counts()


async def test_requests_that_arrive_together_are_answered_and_counted_as_dispatch_does(
    lines: list[Line],
) -> None:
    for version, acks in ((7, -1), (9, 1)):
        for sizes in ((3, 2, 6, 100), (2,) * 50):
            frames = [produce_frame(version, [("t", [part])], acks, 5) for part in batches()]
            plain = [await lines[1].ready(lines[1].serve(frame)) for frame in frames]
            answers = []
            for size in sizes:
                together, frames = frames[:size], frames[size:]
                if len(together) > 1:
                    answers += [await lines[0].ready(each) for each in lines[0].serve(*together)]
            answers += [await lines[0].ready(lines[0].serve(frame)) for frame in frames]
            assert b"".join(answers) == b"".join(plain)
    assert lines[0].counts() == lines[1].counts()
    for index in range(2):
        logs = [line.asker.services.replicas["t", index].log for line in lines]
        assert len({(log.folder / "00000000000000000000.log").read_bytes() for log in logs}) == 1
        assert len({tuple(log.producers.entries()) for log in logs}) == 1


async def test_one_write_stores_what_arrives_together_of_one_producer(
    lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = lines[0]
    frames = [produce_frame(9, [("t", [each])], 1) for each in batches()[:8]]
    for frame in frames[:2]:
        await line.ready(line.serve(frame))
    disk = line.asker.replica("t").log._segments.active._disk
    write, writes = disk.writev, []

    def writev(fd: int, buffers: Any, position: int) -> int:
        writes.append(len(buffers))
        return write(fd, buffers, position)

    monkeypatch.setattr(disk, "writev", writev)
    answers = [await line.ready(answer) for answer in line.serve(*frames[2:])]
    assert len(answers) == 1
    assert writes == [12]
    assert line.asker.replica("t").log.end_offset == 8


async def test_a_rule_on_batches_holds_on_every_way_in(
    lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, plain, long = lines[0], make_batch(b"v"), make_batch(*(bytes(n % 5) for n in range(20_000)))
    like = produce_frame(9, [("t", [(0, plain)])])
    for _ in range(3):
        await line.ready(line.serve(like))
    assert line.streamed == 1

    def refuses(*_: object) -> None:
        raise ApiError(ErrorCode.POLICY_VIOLATION)

    monkeypatch.setattr(ProduceRules, "replica_for", refuses)
    for parts in ([(0, plain)], [(0, plain), (1, plain)], [(0, long)]):
        answer = await line.ready(line.serve(produce_frame(9, [("t", parts)])))
        ((_, results),) = decode_produce_response(9, answer[9:]).topics
        assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * len(parts)
    assert line.streamed == 1
    assert [line.asker.replica("t", index).log.end_offset for index in (0, 1)] == [3, 0]


async def test_the_topic_of_a_stream_may_be_deleted_and_created_again(lines: list[Line]) -> None:
    line = lines[0]
    for version, unknown, of_the_successor in (
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (0, 0)),
        (13, ErrorCode.UNKNOWN_TOPIC_ID, (ErrorCode.UNKNOWN_TOPIC_ID, -1)),
    ):
        frame = produce_frame(version, [(line.topic_in(version), [(0, make_batch(b"v"))])])
        for _ in range(3):
            await line.ready(line.serve(frame))
        assert isinstance(line.stream, ProduceStream)
        await line.asker.ask(ApiKey.DELETE_TOPICS, 3, topic_names=["t"], timeout_ms=1000)
        assert result_of(await line.ready(line.serve(frame)), version) == (unknown, -1)
        await line.asker.create("t")
        assert result_of(await line.ready(line.serve(frame)), version) == of_the_successor


def result_of(answer: bytes, version: int = 9) -> tuple[int, int]:
    """Error code and base offset."""
    ((_, (result,)),) = decode_produce_response(version, answer[9:]).topics
    return result.error_code, result.base_offset


async def test_a_fault_in_a_stream_is_answered_and_logged_as_one(
    lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = lines[0]
    frame = produce_frame(9, [("t", [(0, make_batch(b"v"))])])
    for _ in range(2):
        await line.ready(line.serve(frame))
    assert line.stream is not None

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(line.stream.handler, "batch_appended", fails)
    with capture_logs() as logs:
        answer = await line.ready(line.serve(frame))
    assert result_of(answer) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert [entry["event"] for entry in logs] == ["request_failed"]
    awaited_before = len(line._ready)
    await line.asker.replica("t").flushed()
    assert len(line._ready) == awaited_before


async def awaited(line: Line, timeout_ms: int = 30_000) -> AwaitedProduce:
    """A streamed request whose flush does not come."""
    request = ProduceRequest(None, -1, timeout_ms, [("t", [(0, make_batch(b"v"))])])
    frame = b"".join(encode_request_frame(ApiKey.PRODUCE, 9, 5, "test", encode_produce_request(9, request)))
    for _ in range(2):
        await line.ready(line.serve(frame))
    line.asker.replica("t").log.begin_flush = lambda: None  # type: ignore[method-assign]
    answer = line.serve(frame)
    assert isinstance(answer, AwaitedProduce)
    assert answer.answer is None
    return answer


async def test_a_streamed_request_ends_at_its_timeout(lines: list[Line]) -> None:
    answer = await awaited(lines[0], timeout_ms=1)
    begun = asyncio.get_running_loop().time()
    assert result_of(await lines[0].ready(answer)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert asyncio.get_running_loop().time() - begun < SWEEP_MS / 1000 + DEADLINE_SECONDS


async def test_a_streamed_request_is_refused_if_its_flush_fails(lines: list[Line]) -> None:
    answer = await awaited(lines[0])
    lines[0].asker.replica("t").fail(OSError(5, "fdatasync"))
    assert result_of(await lines[0].ready(answer)) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("end", [lambda answer: answer.partition_committed(0), AwaitedProduce.time_out])
async def test_an_abandoned_request_is_not_answered(
    lines: list[Line], end: Callable[[AwaitedProduce], None]
) -> None:
    answer = await awaited(lines[0])
    answer.abandon()
    end(answer)
    assert answer.answer is None


async def test_streams_and_other_requests_are_answered_in_the_order_of_arrival(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path, port=0, http_port=-1)
    async with await Broker.start(config) as broker, await Peer.connect(broker.port) as peer:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        await peer.ask(ApiKey.CREATE_TOPICS, 2, {"topics": [topic], "timeout_ms": 1000})
        sent = []
        for number in range(60):
            if number % 7 == 6:
                sent.append(request_frame(ApiKey.METADATA, 1, {"topics": None}, number))
            else:
                acks = 1 if number % 11 == 5 else -1
                sent.append(produce_frame(7, [("t", [(0, make_batch(b"v"))])], acks, number))
        peer.send(b"".join(sent))
        answered = [int.from_bytes((await peer.frame())[:4], "big") for _ in sent]
        assert answered == list(range(60))
        assert broker.services.replicas["t", 0].log.end_offset == 52
