"""Produce: a batch behind refused ones gets their code; one behind a real gap gets OUT_OF_ORDER."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.handlers.transactional import TransactionalClient
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FIRST_BY_ID, ProduceRequest
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class BadDisk(Disk):
    """Writes to segments fail as long as `error` is set."""

    error = 0

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return super().writev(fd, buffers, position)


class Client:
    """An idempotent producer that pipelines batches of one record to `t`."""

    def __init__(self, asker: Asker, version: int = 9) -> None:
        self.asker = asker
        self.version = version
        self.producer_id = -1
        self.topic: str | UUID = "t"
        self.closed: list[Replica] = []

    async def start(self) -> None:
        await self.asker.create("t")
        if self.version >= FIRST_BY_ID:
            self.topic = self.asker.replica("t").topic_id
        answer = await self.asker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
        self.producer_id = answer.producer_id

    async def send(self, *sequences: int, epoch: int = 0, records: int = 1) -> list[ErrorCode]:
        codes = []
        for sequence in sequences:
            batch = make_batch(
                *[b"v"] * records, producer_id=self.producer_id, epoch=epoch, sequence=sequence
            )
            request = ProduceRequest(None, -1, 30_000, [(self.topic, [(0, batch)])])
            answer = self.asker.call(ApiKey.PRODUCE, self.version, request)
            ((_, (result,)),) = await answer if isawaitable(answer) else answer
            codes.append(ErrorCode(result.error_code))
        return codes


Refuse = Callable[[Client, BadDisk], None]


def _fill(client: Client, disk: BadDisk) -> None:
    disk.error = errno.ENOSPC


def _empty(client: Client, disk: BadDisk) -> None:
    disk.error = 0


def _use_up_handles(client: Client, disk: BadDisk) -> None:
    disk.error = errno.EMFILE


def _shrink(client: Client, disk: BadDisk) -> None:
    log = client.asker.replica("t").log
    log.reconfigure(replace(log.config, min_insync_replicas=2))
    _lead(client, replicas=(client.asker.services.node_id, 2))


def _depose(client: Client, disk: BadDisk) -> None:
    replica = client.asker.replica("t")
    replica.follow(replica.leader_epoch + 1, 2)


def _elect(client: Client, disk: BadDisk) -> None:
    _lead(client, replicas=(client.asker.services.node_id,))


def _lead(client: Client, replicas: tuple[int, ...]) -> None:
    replica, node_id = client.asker.replica("t"), client.asker.services.node_id
    replica.lead(PartitionAssignment(node_id, replica.leader_epoch + 1, replicas, (node_id,)))


def _close(client: Client, disk: BadDisk) -> None:
    client.closed.append(client.asker.services.partitions.replicas.pop(("t", 0)))


def _open(client: Client, disk: BadDisk) -> None:
    client.asker.services.partitions.replicas["t", 0] = client.closed.pop()


REFUSALS = [
    pytest.param(_fill, _empty, ErrorCode.KAFKA_STORAGE_ERROR, id="a full disk"),
    pytest.param(_use_up_handles, _empty, ErrorCode.KAFKA_STORAGE_ERROR, id="too few file handles"),
    pytest.param(_shrink, _elect, ErrorCode.NOT_ENOUGH_REPLICAS, id="a small in-sync set"),
    pytest.param(_depose, _elect, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="another leader"),
    pytest.param(_close, _open, ErrorCode.NOT_LEADER_OR_FOLLOWER, id="a log that is not open yet"),
]


@pytest.fixture
def disk() -> BadDisk:
    return BadDisk()


@pytest.fixture(params=[9, 13], ids=["by name", "by id"])
async def client(open_asker: Callable[..., Any], disk: BadDisk, request: pytest.FixtureRequest) -> Client:
    client = Client(await open_asker(disk=disk), request.param)
    await client.start()
    return client


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("refuse", "accept", "code"), REFUSALS)
async def test_batches_behind_a_refused_one_get_its_code_until_it_is_stored(
    client: Client, disk: BadDisk, refuse: Refuse, accept: Refuse, code: ErrorCode, is_known: bool
) -> None:
    first = 0
    if is_known:
        assert await client.send(0) == [0]
        first = 1
    refuse(client, disk)
    assert await client.send(first) == [code]
    accept(client, disk)
    assert await client.send(*range(first + 1, first + 5)) == [code] * 4
    assert await client.send(*range(first, first + 5)) == [0] * 5
    assert client.asker.replica("t").log.end_offset == first + 5


async def test_a_full_disk_refuses_all_that_was_in_flight_with_one_code(
    client: Client, disk: BadDisk
) -> None:
    disk.error = errno.ENOSPC
    assert await client.send(*range(5)) == [ErrorCode.KAFKA_STORAGE_ERROR] * 5
    assert client.asker.services.metrics.render().count(b"tidelog_out_of_order_batches_total 0.0") == 1


async def test_a_sequence_that_never_came_is_out_of_order(client: Client, disk: BadDisk) -> None:
    assert await client.send(0) == [0]
    assert await client.send(2, 3) == [OUT_OF_ORDER] * 2  # 1 never came; what gets 45 fills no gap.
    disk.error = errno.ENOSPC
    assert await client.send(1) == [ErrorCode.KAFKA_STORAGE_ERROR]
    disk.error = 0
    assert await client.send(3) == [OUT_OF_ORDER]
    assert await client.send(2, epoch=1) == [OUT_OF_ORDER]
    assert await client.send(2) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_refusal_that_no_retry_can_help_fills_no_gap(client: Client) -> None:
    assert await client.send(0) == [0]
    log = client.asker.replica("t").log
    log.reconfigure(replace(log.config, max_message_bytes=80))
    assert await client.send(1, records=9) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert await client.send(10) == [OUT_OF_ORDER]


async def test_a_batch_behind_one_that_waits_for_its_coordinator_gets_the_same_code(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()

    async def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

    monkeypatch.setattr(asker.services.transactions, "add_partitions", refuse)
    assert (await client.produce("t", 0)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.undo()
    assert (await client.produce("t", 1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [(await client.produce("t", sequence)).error_code for sequence in (0, 1)] == [0, 0]
