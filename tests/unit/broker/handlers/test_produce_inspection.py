"""Batches that take long to inspect: looked at in a thread, appended in the order in which they came."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.handlers import produce_inspection
from tidelog.broker.handlers.context import CloseConnection, LateAnswer
from tidelog.broker.storage import recompression
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.recompression import inspect_to_store
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder, decode_batch, read_batch_header
from tidelog.protocol.records.header import write_crc

Open = Callable[..., Awaitable[Asker]]


def long_batch(count: int = 20_000, codec: Compression = Compression.NONE) -> bytearray:
    """More records, of several sizes, than a step of the loop may go through."""
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, bytes(number % 5))
    return builder.build(codec)


def broken(batch: bytearray) -> bytes:
    """The number of headers of the last record is not 0."""
    batch[-1] = 2
    write_crc(batch)
    return bytes(batch)


class Threads:
    """In which threads batches were inspected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[threading.Thread] = []
        for module in (produce_inspection, recompression):
            monkeypatch.setattr(module, "inspect_to_store", self.inspect)

    def inspect(self, *given: Any) -> Any:
        self.found.append(threading.current_thread())
        return inspect_to_store(*given)


async def test_a_batch_that_takes_long_is_inspected_in_a_thread(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    threads = Threads(monkeypatch)
    late = asker.send(("t", 0, bytes(long_batch())))
    assert isinstance(late, LateAnswer)
    assert not late.is_effective
    assert asker.replica("t").log.end_offset == 0
    assert (await late)[0][1][0].base_offset == 0
    assert asker.replica("t").high_watermark == 20_000
    assert [thread is threading.main_thread() for thread in threads.found] == [True, False]


async def test_a_batch_that_takes_long_to_compress_is_compressed_in_a_thread(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t", 2, compression_type="gzip")
    threads = Threads(monkeypatch)
    values = [bytes([number]) * 1000 for number in range(200)]
    late = asker.send(("t", 0, make_batch(*values)), ("t", 1, make_batch(b"v")))
    assert isinstance(late, LateAnswer)
    assert not late.is_effective
    assert [results[0].base_offset for _, results in await late] == [0, 0]
    assert threading.main_thread() not in threads.found[1:]
    for partition, expected in enumerate((values, [b"v"])):
        replica = asker.replica("t", partition)
        (data,) = replica.log.read(Read(0, 1 << 20, replica.high_watermark)).records
        assert read_batch_header(data).compression is Compression.GZIP
        assert [record.value for record in decode_batch(data)] == expected


async def test_what_was_sent_outlives_its_frame(asker: Asker) -> None:
    await asker.create("t")
    frame = long_batch()
    late = asker.send(("t", 0, memoryview(frame)))  # type: ignore[arg-type]
    frame[61:] = bytes(len(frame) - 61)
    assert (await late)[0][1][0].error_code == ErrorCode.NONE


async def test_a_batch_takes_effect_before_it_is_durable(asker: Asker) -> None:
    await asker.create("t")
    late = asker.send(("t", 0, bytes(long_batch())))
    ends = []
    late.when_effective(lambda: ends.append((asker.replica("t").log.end_offset, late.is_given)))
    await late
    assert ends == [(20_000, False)]


async def test_a_long_batch_that_is_broken_is_refused_alone(asker: Asker) -> None:
    await asker.create("t", 2)
    answer = await asker.send(("t", 0, broken(long_batch())), ("t", 1, make_batch(b"v")))
    assert [results[0].error_code for _, results in answer] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert asker.replica("t").log.end_offset == 0
    assert asker.replica("t", 1).log.end_offset == 1


async def test_nothing_of_a_request_is_appended_before_all_of_it_was_inspected(asker: Asker) -> None:
    await asker.create("t", 2)
    late = asker.send(("t", 0, make_batch(b"first")), ("t", 1, bytes(long_batch())))
    assert asker.replica("t").log.end_offset == 0
    assert [results[0].base_offset for _, results in await late] == [0, 0]


async def test_one_request_at_a_time_is_inspected_in_a_thread(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is decompressed there is bounded, whoever sends it."""
    await asker.create("t")
    running = most = 0
    lock = threading.Lock()

    def inspect(*given: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return inspect_to_store(*given)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(produce_inspection, "inspect_to_store", inspect)
    await asyncio.gather(*(asker.send(("t", 0, bytes(long_batch()))) for _ in range(6)))
    assert (asker.replica("t").log.end_offset, most) == (120_000, 1)


async def test_without_acks_a_long_batch_is_appended_and_nothing_answered(asker: Asker) -> None:
    await asker.create("t")
    assert await asker.send(("t", 0, bytes(long_batch())), acks=0) is None
    assert asker.replica("t").log.end_offset == 20_000
    with pytest.raises(CloseConnection):
        await asker.send(("t", 0, broken(long_batch())), acks=0)


async def test_what_is_not_here_is_not_inspected(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    await asker.create("t")
    threads = Threads(monkeypatch)
    answer = asker.send(("t", 7, bytes(long_batch())), ("nowhere", 0, bytes(long_batch())))
    assert [results[0].error_code for _, results in answer] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert threads.found == []


@pytest.mark.parametrize("codec", list(Compression)[1:])
async def test_what_yields_much_is_decompressed_in_a_thread(asker: Asker, codec: Compression) -> None:
    await asker.create("t")
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, bytes(1 << 20))
    late = asker.send(("t", 0, bytes(builder.build(codec))))
    assert isinstance(late, LateAnswer)
    assert not late.is_effective
    assert (await late)[0][1][0].base_offset == 0
