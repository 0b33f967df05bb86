"""Which part of a partition's log is in remote storage, as this broker knows it while it leads.

Owns the manifest in memory and its changes. Invariants:
- a leader changes nothing before it has claimed the partition: with a manifest of its own epoch, after which
  no manifest of an earlier leader can be put;
- changes are made one after the other; after one whose outcome is not known, the manifest is not known until
  it was claimed again;
- without an unclean election, a log that does not adjoin the remote segments changes nothing there: its
  folder or the URL is the wrong one. The same applies if records were copied and there is no manifest;
- each claim puts a manifest before it deletes what none names: an earlier request that arrives later finds
  its number taken, so it cannot name deleted objects;
- `PartitionLog.copied_end_offset`, up to where retention may delete local segments, follows a durable
  manifest only.

Event loop, but for `segments`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.checkpoints import COPIED_OFFSET, write_number
from tidelog.broker.storage.local_segment import LocalSegment
from tidelog.broker.tiering.copying import copy_segment
from tidelog.broker.tiering.plan import agreed_end
from tidelog.broker.tiering.remote_segments import RemoteReader, RemoteSegment
from tidelog.protocol.errors import ApiError
from tidelog.remote_log.manifest import CopiedSegment, Manifest, ManifestError
from tidelog.remote_log.partition_objects import ManifestConflictError, PartitionObjects

_NOWHERE = 2**63 - 1
_ADVICE = (
    "set remote.storage.url to the store of before; to give up the records in remote storage, set"
    " remote.storage.enable=false and remote.log.delete.on.disable=true"
)
Run = Callable[..., Awaitable[Any]]
"""Calls a blocking function in a thread."""
logger = structlog.get_logger(__name__)


class _OvertakenError(Exception):
    """What was copied cannot follow what the manifest has now."""


class RemoteLog:
    """Keeps the remote part of one replica's log in one leader epoch. Implements `RemotePart`."""

    def __init__(
        self, replica: Replica, reader: RemoteReader, run: Run, is_stopping: Callable[[], bool]
    ) -> None:
        self.objects = PartitionObjects(reader.store, replica.topic_id, replica.partition)
        self.manifest: Manifest | None = None
        """The one that counts; None while that is not known."""
        self.leader_epoch = replica.leader_epoch
        self._replica = replica
        self._log = replica.log
        self._reader = reader
        self._run = run
        self._is_stopping = is_stopping
        self._copied = replica.log.folder / COPIED_OFFSET
        self._changing = asyncio.Lock()
        self._claims = 0

    @property
    def start_offset(self) -> int | None:
        """As `RemotePart`."""
        manifest = self.manifest
        if manifest is None:
            return None
        return manifest.start_offset if manifest.segments else _NOWHERE

    @property
    def size_bytes(self) -> int:
        """As `RemotePart`."""
        return 0 if self.manifest is None else self.manifest.size_bytes

    @property
    def is_current(self) -> bool:
        """Whether the replica still leads in the same epoch."""
        replica = self._replica
        return replica.stopped is None and replica.log.remote is self

    def segments(self) -> Sequence[RemoteSegment]:
        """As `RemotePart`."""
        manifest = self.manifest
        if manifest is None:
            raise OSError("the manifest of remote storage is not loaded yet")
        return [RemoteSegment(self._reader, self.objects.path(each.name), each) for each in manifest.segments]

    async def claim(self) -> Manifest:
        """The manifest, of this leader's epoch, after what no manifest names was deleted.

        Raises OSError, ManifestError, and ManifestConflictError where a later leader has claimed it.
        """
        async with self._changing:
            return await self._claim() if self.manifest is None else self.manifest

    async def _claim(self) -> Manifest:
        log, replica = self._log, self._replica
        found: Manifest | None = await self._run(self.objects.load)
        if found is None:
            if log.disk.exists(self._copied):
                raise ManifestError(
                    f"there is no {self.objects.path('manifest')}, and {self._copied} says that remote"
                    f" storage holds records of this partition: {_ADVICE}"
                )
            start = log.start_offset
            claimed = Manifest(0, log.topic, replica.topic_id, log.partition, self.leader_epoch, start, start)
        elif found.leader_epoch > self.leader_epoch:
            raise ManifestConflictError(f"epoch {found.leader_epoch} leads, not {self.leader_epoch}")
        else:
            end = agreed_end(found, log.epochs.entries, log.start_offset, log.end_offset)
            has_lost = end < found.end_offset
            if found.segments and not (has_lost and replica.may_lose_committed):
                await self._check_joins(found, end)
            claimed = found.next()
            if has_lost:
                logger.error(
                    "remote_segments_given_up",
                    topic=log.topic,
                    partition=log.partition,
                    from_offset=end,
                    end_offset=found.end_offset,
                    advice="an unclean election lost records that had been copied; nothing to do",
                )
                claimed = found.ending_at(end)
                if claimed.end_offset < log.start_offset:
                    claimed = claimed.starting_at(log.start_offset)
                if not found.segments and not replica.may_lose_committed:
                    # It is of another log, and must not delete the records of this one.
                    start = log.start_offset
                    claimed = msgspec.structs.replace(claimed, start_offset=start, end_offset=start)
            claimed = msgspec.structs.replace(
                claimed, number=found.number + 1, leader_epoch=self.leader_epoch
            )
            log.epochs.add_older(claimed.epochs)
        await self._run(self._commit, claimed)
        self._claims += 1
        self._hold(claimed)
        await self._run(self.objects.sweep, claimed)
        return claimed

    def _commit(self, manifest: Manifest) -> None:
        """Let a manifest count. Before the first one with segments, the partition's folder says so."""
        disk = self._log.disk
        if manifest.segments and not disk.exists(self._copied):
            write_number(disk, self._copied, manifest.end_offset)
        self.objects.commit(manifest)

    async def _check_joins(self, found: Manifest, agreed: int) -> None:
        """Raise ManifestError unless the local log, which has the same leader epochs up to `agreed`, goes on
        where remote storage ends, with the same batches."""
        log, last = self._log, found.segments[-1]
        joins = log.start_offset <= found.end_offset == agreed
        if joins and last.max_timestamp >= 0:
            place = await self._run(log.batch_at, last.max_timestamp_offset)
            there = last.max_timestamp_offset, last.max_timestamp
            joins = place is None or (place.last_offset, place.max_timestamp) == there
        if not joins:
            raise ManifestError(
                f"{self.objects.path('manifest')} names the records {found.start_offset} to"
                f" {found.end_offset}, and those of the local log, {log.start_offset} to {log.end_offset}, do"
                f" not join them: {_ADVICE}; put back the partition's folder if it was lost"
            )

    def _hold(self, manifest: Manifest) -> None:
        self.manifest = manifest
        if self.is_current:
            self._log.copied_end_offset = manifest.end_offset
            self._log.none_is_lost_before(manifest.end_offset)
            if manifest.start_offset > self._log.start_offset:
                with suppress(ApiError):
                    self._log.delete_records_before(manifest.start_offset)

    async def sweep(self) -> None:
        """Delete what no manifest names; while nothing is copied. Raises OSError, ManifestConflictError."""
        async with self._changing:
            if self.manifest is not None:
                await self._run(self.objects.sweep, self.manifest)

    async def copy(self, segment: LocalSegment) -> int:
        """Copy a segment; how many bytes, 0 where its records were deleted meanwhile. Raises as `claim`."""
        claims = self._claims
        copied: CopiedSegment = await self._run(
            copy_segment, self.objects, self._log, segment, self.leader_epoch, self._wants_copies
        )
        epochs = list(self._log.epochs.entries)

        def with_copied(manifest: Manifest) -> Manifest:
            # A claim may have deleted the objects, and DeleteRecords the records.
            follows = copied.base_offset <= manifest.end_offset < copied.end_offset
            if self._claims != claims or not follows:
                raise _OvertakenError
            return manifest.with_copied(copied, epochs)

        try:
            await self._change(with_copied)
        except _OvertakenError:
            await self._run(self.objects.delete_segments, [copied.name])
            return 0
        return copied.size_bytes

    def _wants_copies(self) -> bool:
        return self.is_current and not self._is_stopping()

    async def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`, durably. Raises as `claim`."""
        await self.claim()
        await self._change(lambda manifest: manifest.starting_at(offset))

    async def _change(self, change: Callable[[Manifest], Manifest]) -> None:
        async with self._changing:
            if self.manifest is None or not self.is_current:
                raise ManifestConflictError("this broker does not lead, or has not claimed the manifest")
            before, after = self.manifest, change(self.manifest)
            try:
                await self._run(self._commit, after)
            except BaseException:
                self.manifest = None
                raise
            self._hold(after)
        kept = {each.name for each in after.segments}
        if gone := [each.name for each in before.segments if each.name not in kept]:
            await self._run(self.objects.delete_segments, gone)
