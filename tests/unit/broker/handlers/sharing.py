"""A member of a share group, as its requests and their answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.broker.handlers.conftest import Asker
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@dataclass
class Member:
    """`topic` must exist; what it got is in `held`: offset -> delivery count."""

    asker: Asker
    topic: str = "jobs"
    member_id: str = "first"
    group_id: str = "pool"
    epoch: int = -1
    partition: int = 0

    async def join(self, **configs: str) -> Any:
        """The answer to its first heartbeat; the group reads from the earliest record, unless `configs` say
        otherwise."""
        await self.configure(**{"share.auto.offset.reset": "earliest", **configs})
        self.epoch = 0
        return await self.heartbeat(0)

    async def heartbeat(self, member_epoch: int) -> Any:
        return await self.asker.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=member_epoch,
            subscribed_topic_names=[self.topic],
        )

    async def configure(self, **configs: str) -> None:
        answer = await self.asker.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": 32,
                    "resource_name": self.group_id,
                    "configs": [
                        {"name": name, "config_operation": 0, "value": value}
                        for name, value in configs.items()
                    ],
                }
            ],
        )
        assert not answer.responses[0].error_code, answer

    def _topics(self, *batches: tuple[int, int, Sequence[int]]) -> list[dict[str, Any]]:
        acknowledged = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in batches
        ]
        partitions = [{"partition_index": self.partition, "acknowledgement_batches": acknowledged}]
        return [{"topic_id": self.asker.topic(self.topic).topic_id, "partitions": partitions}]

    async def fetch(self, *batches: tuple[int, int, Sequence[int]], **values: Any) -> Any:
        """The whole answer; `batches` are acknowledged with it."""
        epoch = values.pop("epoch", self.epoch)
        answer = await self.asker.ask(
            ApiKey.SHARE_FETCH,
            2,
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": self._topics(*batches),
                **values,
            },
        )
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    async def got(self, **values: Any) -> dict[int, int]:
        """Offset -> delivery count of what it gets now. The records are in the answer."""
        answer = await self.fetch(**values)
        assert not answer.error_code, answer
        held: dict[int, int] = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                assert not partition.error_code, answer
                for each in partition.acquired_records:
                    held.update(
                        dict.fromkeys(range(each.first_offset, each.last_offset + 1), each.delivery_count)
                    )
                assert held.keys() <= set(offsets_in(partition.records))
        return held

    async def acknowledge(self, *batches: tuple[int, int, Sequence[int]], **values: Any) -> int:
        """The error code of the partition, or of the request."""
        epoch = values.pop("epoch", self.epoch)
        answer = await self.asker.ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            2,
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=self._topics(*batches),
            **values,
        )
        if answer.error_code:
            return int(answer.error_code)
        self.epoch = epoch + 1
        return int(answer.responses[0].partitions[0].error_code) if answer.responses else 0


def offsets_in(records: bytes) -> list[int]:
    return [
        header.base_offset + index
        for position, header in iter_batches(records)
        for index in range(header.last_offset_delta + 1)
    ]
