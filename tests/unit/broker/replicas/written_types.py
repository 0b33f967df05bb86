"""The type checker refuses an answer that waits for nothing: `make types` checks this file, nothing runs it.

A comment that ignores an error is an error itself where there is none, so each line that has one is refused.
"""

from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.progress import CommitWaiter, Mark
from tidelog.broker.replicas.replica import Replica


def of_an_append(replica: Replica) -> int:
    return replica.append_as_leader(b"", 0).base_offset  # type: ignore[attr-defined, no-any-return]


def of_a_coordinator(replica: Replica) -> int:
    return replica.append_as_coordinator(b"", 0).base_offset  # type: ignore[attr-defined, no-any-return]


async def of_a_dropped_future(replica: Replica) -> None:
    replica.append_as_coordinator(b"", 0)  # type: ignore[unused-awaitable]


def of_a_deletion(replica: Replica) -> int:
    return replica.delete_records_before(0)  # type: ignore[return-value]


def with_a_waiter(replica: Replica, mark: Mark, waiter: CommitWaiter) -> int:
    return replica.when(mark, replica.append_as_leader(b"", 0), waiter, 0).base_offset


def without_a_promise(replica: Replica) -> int:
    return replica.soon_durable(replica.append_as_leader(b"", 0)).base_offset


async def of_a_coordinator_that_waits(replica: Replica) -> int:
    return (await replica.append_as_coordinator(b"", 0)).base_offset


async def of_a_deletion_that_is_saved(replica: Replica, partitions: Partitions) -> int:
    return (await partitions.save_start_offsets([replica.delete_records_before(0)]))[0]
