"""Producer ids: a pure machine that hands out the ids of blocks, and which block comes next.

Owns for one broker the current block, the prefetched one, and the bound below which ids may have been issued
(`ProducerIdAllocator`).

Invariants:
- an id is handed out only from a block that `block_reserved` delivered, hence after the block was durable;
- ids rise strictly and are never handed out twice; ids of a block that are unused at a crash are a gap;
- at most one reservation runs at a time, and a failed one is tried again only after a back-off;
- past int64 there is an error (`ProducerIdsExhausted`), never a wrap.

No I/O, no clock. Source: KIP-98, KIP-360, Kafka's ProducerIdControlManager for the size of a block.

Pure.
"""

from typing import NamedTuple

from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
RETRY_BACKOFF_MS = 50
PREFETCH_DIVISOR = 10
"""The next block is asked for when a tenth of the current one is left."""


UNSEEN_IDS = 1_000_000
"""How many ids above the highest one in the logs may belong to producers that never wrote."""


class ProducerIdsExhausted(Exception):
    """Every producer id that an int64 can name has been reserved."""


class ProducerIdBlock(NamedTuple):
    """The ids `first` to `end - 1`."""

    first: int
    end: int


class Allocation(NamedTuple):
    """The result of a request for one id: the id, or None when the request must wait for a block.

    `reserve_block`: the caller must now reserve one block and report `block_reserved` or `block_failed`.
    """

    producer_id: int | None
    reserve_block: bool


def next_block(next_producer_id: int, size: int = BLOCK_SIZE) -> ProducerIdBlock:
    """The block to reserve when `next_producer_id` is the first id not in any block yet.

    Raises ProducerIdsExhausted when the block would pass int64.
    """
    if next_producer_id > MAX_PRODUCER_ID - size:
        raise ProducerIdsExhausted(
            f"the next block of {size} producer ids from {next_producer_id} would pass {MAX_PRODUCER_ID}; "
            "this cluster can issue no more producer ids"
        )
    return ProducerIdBlock(next_producer_id, next_producer_id + size)


def above_all_issued(highest_seen: int) -> int:
    """The first id to hand out if only the logs show which ids were issued."""
    return min(highest_seen + 1 + UNSEEN_IDS, MAX_PRODUCER_ID)


def check_init_producer_id(transactional_id: str | None, producer_id: int, producer_epoch: int) -> None:
    """Raise ApiError (INVALID_REQUEST) for an InitProducerId request that is wrong in every state.

    Both or neither of id and epoch may be -1.
    """
    if transactional_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; send null for none")
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {producer_epoch}: both or neither must be -1",
        )


class ProducerIdAllocator:
    """Hands out ids one by one and says when the next block must be reserved."""

    __slots__ = ("_current", "_following", "_next", "_reserving", "_retry_at_ms")

    def __init__(self, next_unreserved: int) -> None:
        """`next_unreserved`: the first id that no durable block covers; all below may have been issued."""
        self._next = next_unreserved
        self._current = ProducerIdBlock(next_unreserved, next_unreserved)
        self._following: ProducerIdBlock | None = None
        self._reserving = False
        self._retry_at_ms = 0

    def first_unissued(self, reserved_end: int) -> int:
        """No broker ever issued an id at or above this one; `reserved_end`: no block of the cluster is above
        it."""
        first = reserved_end
        if self._following is not None and self._following.end == first:
            first = self._following.first
        return self._next if self._current.end == first else first

    def allocate(self, now_ms: int) -> Allocation:
        """One id for one InitProducerId, or none while a block is being reserved."""
        if self._next == self._current.end and self._following is not None:
            self._current, self._following = self._following, None
            self._next = self._current.first
        producer_id: int | None = None
        if self._next < self._current.end:
            producer_id = self._next
            self._next += 1
        return Allocation(producer_id, self._should_reserve(now_ms))

    def _should_reserve(self, now_ms: int) -> bool:
        if self._reserving or self._following is not None or now_ms < self._retry_at_ms:
            return False
        size = self._current.end - self._current.first
        if (self._current.end - self._next) * PREFETCH_DIVISOR > size:
            return False
        self._reserving = True
        return True

    def block_reserved(self, block: ProducerIdBlock) -> None:
        """A block is durable. Raises ValueError for a block that would repeat an id."""
        if block.first < self._current.end or block.end <= block.first:
            raise ValueError(
                f"block {block.first}-{block.end} overlaps ids already reserved up to {self._current.end}; "
                "the cluster store has an older state"
            )
        self._reserving = False
        self._retry_at_ms = 0
        self._following = block

    def block_failed(self, now_ms: int) -> None:
        """The reservation failed: nothing changed, and another may be tried after the back-off."""
        self._reserving = False
        self._retry_at_ms = now_ms + RETRY_BACKOFF_MS
