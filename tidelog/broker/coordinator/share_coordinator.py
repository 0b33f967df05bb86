"""The coordinator of share partitions: a machine of states over each partition of `__share_group_state`.

Owns what happens to states without a request: records that no state needs any more are deleted, and the
states of deleted topics are removed.

Invariants: an answer leaves once everything that it shows is durable; records are deleted only after later
snapshots of all their states are committed.

On the event loop. Source: Kafka's ShareCoordinatorService.
"""

import asyncio
from collections.abc import Iterator
from functools import partial

from tidelog.broker.cluster.catalog import SHARE_STATE_TOPIC
from tidelog.broker.coordinator.shards import Coordinator, CoordinatorParts, Shard, ShardKind
from tidelog.broker.coordinator.share_states.machine import ShareStates
from tidelog.broker.coordinator.share_states.records import SHARE_STATE_FORMATS
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.tasks import kept
from tidelog.protocol.errors import ErrorCode

LEAST_PRUNED = 1_000
"""Records that no state needs, from which on it is worth to write snapshots and to delete them."""
_BATCHES_AT_ONCE = 10_000
"""Of the states whose snapshots are one batch of the log."""
_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged. Until it can be "
    "read, share groups cannot acknowledge records of these partitions"
)


class ShareCoordinator(Coordinator[ShareStates]):
    """Keeps the states of the share partitions that this broker coordinates."""

    def __init__(self, parts: CoordinatorParts) -> None:
        self._catalog, settings = parts.catalog, parts.settings
        kind = ShardKind(
            SHARE_STATE_TOPIC,
            SHARE_STATE_FORMATS,
            lambda: ShareStates(
                settings.config.share_coordinator_snapshot_update_records_per_snapshot, parts.clock_ms
            ),
            self._begin,
            ErrorCode.INVALID_REQUEST,
            _ADVICE,
        )
        super().__init__(kind, parts)

    def start(self) -> None:
        """Begin to replay the existing partitions, and to delete what no state needs."""
        self._shards.start()
        self._tasks.begin(kept(self._prune_repeatedly))

    async def _begin(self, shard: Shard[ShareStates]) -> None:
        """Nothing waits for a replay."""

    async def _prune_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.config.share_coordinator_state_topic_prune_interval_ms / 1000)
            await self.prune()

    async def prune(self) -> None:
        """Delete the records that later snapshots replace."""
        advice = "the broker tries again after share.coordinator.state.topic.prune.interval.ms"
        await self._shards.for_each(self._prune, "share_states_not_pruned", advice)

    async def _prune(self, shard: Shard[ShareStates]) -> None:
        log, machine = shard.replica.log, shard.machine
        end_offset = log.end_offset
        if end_offset - log.start_offset < LEAST_PRUNED + 2 * len(machine.states):
            return
        for keys in _some_at_once(machine):
            await shard.run(partial(machine.snapshots, keys, self._exists))
        shard.replica.delete_records_before(end_offset)

    def _exists(self, topic_id: object) -> bool:
        return self._catalog.topic_by_id(topic_id) is not None  # type: ignore[arg-type]


def _some_at_once(machine: ShareStates) -> Iterator[list[SharePartitionKey]]:
    some: list[SharePartitionKey] = []
    size = 0
    for key, state in list(machine.states.items()):
        if (some and size + len(state.batches) > _BATCHES_AT_ONCE) or len(some) == 100:
            yield some
            some, size = [], 0
        some.append(key)
        size += len(state.batches)
    if some:
        yield some
