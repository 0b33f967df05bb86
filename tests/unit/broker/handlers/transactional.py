"""A client with a transactional id that asks handlers, version by version."""

from typing import Any

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer
from tidelog.protocol.hot import ProducePartitionResult, ProduceRequest
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey


def transactional_batch(client: Producer, sequence: int = 0, value: bytes = b"v") -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, value, ())
    return bytes(
        builder.build(
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


class TransactionalClient:
    """`is_new`: it uses the second transaction version (KIP-890)."""

    def __init__(self, asker: Asker, transactional_id: str = "x", *, is_new: bool = False) -> None:
        self.asker = asker
        self.name = transactional_id
        self.is_new = is_new
        self.pair = NO_PRODUCER

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.pair.producer_id,
            "producer_epoch": self.pair.epoch,
        }

    async def begin(self, version: int = 5, timeout_ms: int = 60_000, **more: Any) -> Any:
        await self.asker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[self.name])
        wanted = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **more}
        answer = await self.asker.ask(ApiKey.INIT_PRODUCER_ID, version, **wanted)
        if answer.error_code == 0:
            self.pair = Producer(answer.producer_id, answer.producer_epoch)
        return answer

    async def add(self, *partitions: tuple[str, int], version: int = 3) -> list[int]:
        topics = [{"name": name, "partitions": [index]} for name, index in partitions]
        named = {f"v3_and_below_{name}": value for name, value in self._named().items()}
        answer = await self.asker.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, version, **named, v3_and_below_topics=topics
        )
        return [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    async def add_offsets(self, group_id: str, version: int = 3) -> int:
        answer = await self.asker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **self._named(), group_id=group_id)
        return int(answer.error_code)

    async def commit_offset(
        self, group_id: str, topic: str, offset: int, version: int | None = None, **more: Any
    ) -> int:
        partitions = [{"partition_index": 0, "committed_offset": offset}]
        answer = await self.asker.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version if version is not None else 5 if self.is_new else 3,
            **self._named(),
            group_id=group_id,
            topics=[{"name": topic, "partitions": partitions}],
            **more,
        )
        return int(answer.topics[0].partitions[0].error_code)

    async def produce(
        self, topic: str, sequence: int = 0, value: bytes = b"v", version: int | None = None
    ) -> ProducePartitionResult:
        request = ProduceRequest(
            self.name, -1, 30_000, [(topic, [(0, transactional_batch(self.pair, sequence, value))])]
        )
        answer = self.asker.call(
            ApiKey.PRODUCE, version if version is not None else 12 if self.is_new else 9, request
        )
        if not isinstance(answer, list):
            answer = await answer
        result: ProducePartitionResult = answer[0][1][0]
        return result

    async def end(self, is_commit: bool = True, version: int | None = None) -> int:
        wanted = version if version is not None else 5 if self.is_new else 3
        answer = await self.asker.ask(ApiKey.END_TXN, wanted, **self._named(), committed=is_commit)
        if answer.error_code == 0 and wanted >= 5:
            self.pair = Producer(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    async def described(self) -> Any:
        answer = await self.asker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.name])
        return answer.transaction_states[0]


async def committed(asker: Asker, group_id: str, topic: str, **more: Any) -> tuple[int, int]:
    """(error code, committed offset) of partition 0."""
    groups = [{"group_id": group_id, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    answer = await asker.ask(ApiKey.OFFSET_FETCH, 9, groups=groups, **more)
    part = answer.groups[0].topics[0].partitions[0]
    return part.error_code, part.committed_offset
