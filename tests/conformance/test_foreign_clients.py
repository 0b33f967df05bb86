"""What one foreign client writes, every foreign client reads back byte for byte.

Three unmodified libraries, three implementations of the format: a mistake that a writer and the broker share
is found by the readers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.conformance.conftest import RunningBroker
from tests.conformance.corpus import PARTITIONS, corpus
from tests.conformance.peers import CODECS, Message, Peer
from tests.conformance.peers.aio import AioKafka
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.peers.pure import KafkaPython
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import BatchHeader, batch_crc_is_valid, iter_batches

PEERS: tuple[Peer, ...] = (ConfluentKafka(), AioKafka(), KafkaPython())
_NAMES = [peer.name for peer in PEERS]


class Written(NamedTuple):
    """The topics of one writer with their codecs, what it sent to each, what it was told of each record."""

    topics: dict[str, str]
    messages: list[Message]
    acknowledged: dict[str, list[tuple[int, int, int]]]

    def of_partition(self, index: int) -> list[Message]:
        return [message for message in self.messages if message.partition == index]


@pytest.fixture(scope="module")
def written(broker: RunningBroker) -> dict[str, Written]:
    """The corpus by each writer with each codec, in a topic of its own."""
    return {peer.name: _write(peer, broker.address) for peer in PEERS}


def _write(peer: Peer, address: str) -> Written:
    topics = {f"{peer.name}.{codec}": codec for codec in CODECS}
    peer.create_topics(address, dict.fromkeys(topics, PARTITIONS))
    messages = [message for message in corpus() if peer.can_write(message)]
    acknowledged = peer.write(address, {topic: (codec, messages) for topic, codec in topics.items()})
    return Written(topics, messages, acknowledged)


@pytest.mark.parametrize("reader", PEERS, ids=_NAMES)
@pytest.mark.parametrize("writer", _NAMES)
def test_every_reader_reads_back_every_byte(
    broker: RunningBroker, written: dict[str, Written], writer: str, reader: Peer
) -> None:
    topics = written[writer].topics
    count = len(written[writer].of_partition(0))
    found = reader.read(
        broker.address, {(topic, index): count for topic in topics for index in range(PARTITIONS)}
    )
    for topic in topics:
        for index in range(PARTITIONS):
            mine = [stored for stored in found[topic] if stored.message.partition == index]
            assert [stored.message for stored in mine] == written[writer].of_partition(index)
            assert [stored.offset for stored in mine] == list(range(count))


@pytest.mark.parametrize("writer", _NAMES)
def test_acknowledgements_name_offset_and_timestamp_of_each_record(
    written: dict[str, Written], writer: str
) -> None:
    for acknowledged in written[writer].acknowledged.values():
        for index in range(PARTITIONS):
            mine = sorted(answer for answer in acknowledged if answer[0] == index)
            expected = [
                (index, offset, message.timestamp)
                for offset, message in enumerate(written[writer].of_partition(index))
            ]
            assert mine == expected


@pytest.mark.parametrize("writer", _NAMES)
@pytest.mark.one_broker("reads the data folder")
def test_batches_lie_in_the_log_as_they_were_sent(
    broker: RunningBroker, written: dict[str, Written], writer: str
) -> None:
    for topic, codec in written[writer].topics.items():
        for index in range(PARTITIONS):
            headers = list(_batches(broker, topic, index))
            assert {header.compression for header in headers} <= {
                Compression[codec.upper()],
                Compression.NONE,
            }
            assert Compression[codec.upper()] in {header.compression for header in headers}
            assert len({header.producer_id for header in headers}) == 1
            assert headers[0].producer_id >= 0
            following = 0
            for header in headers:
                assert (header.base_offset, header.base_sequence) == (following, following)
                following = header.last_offset + 1


def _batches(broker: RunningBroker, topic: str, index: int) -> Iterator[BatchHeader]:
    data = (broker.data_dir / f"{topic}-{index}" / f"{0:020d}.log").read_bytes()
    for position, header in iter_batches(data):
        assert batch_crc_is_valid(data, header, position)
        yield header


@pytest.mark.parametrize("peer", PEERS, ids=_NAMES)
def test_offsets_are_found_by_time(broker: RunningBroker, written: dict[str, Written], peer: Peer) -> None:
    messages = written[peer.name].of_partition(1)
    topic = f"{peer.name}.lz4"
    latest = max(message.timestamp for message in messages)
    for timestamp in (0, messages[0].timestamp, messages[100].timestamp, latest):
        expected = next(offset for offset, message in enumerate(messages) if message.timestamp >= timestamp)
        assert peer.offsets(broker.address, topic, 1, timestamp) == (0, len(messages), expected)
    after_all = peer.offsets(broker.address, topic, 1, latest + 1)
    assert after_all[:2] == (0, len(messages))
    assert after_all[2] in (None, len(messages))
