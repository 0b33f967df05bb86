"""What remote storage promises, checked at each change of the bucket and at each look at the brokers.

Owns which manifest counts of each partition. Rules: manifests follow each other, and none of an earlier
leader follows one of a later; the log that they describe loses no record; what the manifest that counts names
is whole in the bucket, with the batches that were committed; no replica begins after its end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

from crc32c import crc32c

from tests.simulation.checked_store import StoreFacts
from tests.simulation.replica_checks import ReplicaChecks
from tests.simulation.virtual_broker import VirtualBroker
from tests.simulation.virtual_bucket import Bucket, SteppedThreads, VirtualStore
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.tiering import fetches, tiering
from tidelog.protocol.records import iter_batches
from tidelog.remote_log.manifest import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    CopiedSegment,
    Manifest,
    decode,
    manifest_name,
    manifest_number,
)

_SWEEP_SECONDS = 1.0


class TieringChecks:
    """Of all brokers and all their lives, while `installed`."""

    def __init__(
        self, bucket: Bucket, facts: StoreFacts, replicas: ReplicaChecks, find: Callable[[str], None]
    ) -> None:
        self.manifests: dict[tuple[UUID, int], Manifest] = {}
        """Those that count."""
        self.copied = 0
        self._bucket = bucket
        self._facts = facts
        self._replicas = replicas
        self._find = find
        self._named: set[str] = set()
        """What they name."""
        bucket.has_put, bucket.has_deleted = self._has_put, self._has_deleted

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let brokers use the bucket."""
        with (
            patch.object(tiering, "remote_store", lambda _: VirtualStore(self._bucket)),
            patch.object(tiering, "SWEEP_SECONDS", _SWEEP_SECONDS),
            patch.object(tiering, "StoreThreads", SteppedThreads),
            patch.object(fetches, "StoreThreads", SteppedThreads),
        ):
            try:
                yield
            finally:
                SteppedThreads.abandon()

    def _has_put(self, name: str, data: bytes) -> None:
        folder, _, own_name = name.rpartition("/")
        number = manifest_number(own_name)
        if number is None:
            return
        topic_id, _, index = folder.partition("/")
        key = UUID(topic_id), int(index)
        before, now = self.manifests.get(key), decode(data)
        if before is not None and (number < before.number or now == before):
            return  # It counts no more, the one with the highest number does; or it came twice.
        self.manifests[key] = now
        for each in now.segments:
            self._check_segment(folder, now, each, before)
        if before is not None:
            self._check_follows(before, now)
            self._named -= set(_names(folder, before))
        self._named |= set(_names(folder, now))

    def _check_follows(self, before: Manifest, now: Manifest) -> None:
        is_next = now.number == before.number + 1 and now.leader_epoch >= before.leader_epoch
        if not is_next or now.start_offset < before.start_offset or now.end_offset < before.end_offset:
            self._find(f"a manifest does not follow the one before it: {before} {now}")

    def _check_segment(
        self, folder: str, manifest: Manifest, segment: CopiedSegment, before: Manifest | None
    ) -> None:
        name = f"{folder}/{segment.name}"
        log, indexes = (self._bucket.objects.get(name + suffix) for suffix in (LOG_SUFFIX, INDEXES_SUFFIX))
        where = f"{manifest.topic}-{manifest.partition}"
        if log is None or indexes is None:
            self._find(f"{where}: {name} is named, and not in the bucket")
            return
        if before is not None and segment in before.segments:
            return
        self.copied += 1
        if (crc32c(log), crc32c(indexes)) != (segment.crc, segment.indexes_crc):
            self._find(f"{where}: {name} has other bytes than the manifest says")
            return
        batches = (
            (header.base_offset, log[position : position + header.size_bytes])
            for position, header in iter_batches(memoryview(log))
        )
        self._replicas.committed(manifest.topic_id, manifest.partition, batches, f"the copy of {where}")

    def _has_deleted(self, name: str) -> None:
        if name in self._named and self._is_of_a_topic(name):
            self._find(f"{name} was deleted, and the manifest that counts names it")

    def look(self, brokers: Sequence[VirtualBroker]) -> None:
        """Check all replicas as they are now."""
        for broker in brokers:
            if broker.services is not None:
                for replica in broker.services.replicas.values():
                    self._check_joins(broker, replica)

    def _check_joins(self, broker: VirtualBroker, replica: Replica) -> None:
        start = replica.log.start_offset
        if not (start and replica.is_running and replica.log.config.remote_storage_enable):
            return
        manifest = self.manifests.get((replica.topic_id, replica.partition))
        if manifest is None or manifest.end_offset < start:
            end = 0 if manifest is None else manifest.end_offset
            self._find(
                f"broker {broker.node_id} has {replica.topic}-{replica.partition} from {start} on, and remote"
                f" storage only up to {end}"
            )

    def _is_of_a_topic(self, name: str) -> bool:
        return self._facts.catalog.topic_by_id(UUID(name.partition("/")[0])) is not None

    def superfluous(self) -> list[str]:
        """The objects that no manifest names, and those of deleted topics. What arrived late after the
        deletion of its topic stays."""
        kept = set(self._named)
        for (topic_id, index), manifest in self.manifests.items():
            numbers = manifest.number - 1, manifest.number
            kept |= {f"{topic_id}/{index}/{manifest_name(max(number, 0))}" for number in numbers}
        return [
            name
            for name in self._bucket.objects
            if name not in (kept if self._is_of_a_topic(name) else self._bucket.late)
        ]


def _names(folder: str, manifest: Manifest) -> Iterator[str]:
    for each in manifest.segments:
        for suffix in (LOG_SUFFIX, INDEXES_SUFFIX):
            yield f"{folder}/{each.name}{suffix}"
