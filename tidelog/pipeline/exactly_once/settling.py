"""Settles a batch with the broker: one durable decision, then the end of every transaction of the batch.

Owns the requests of a driver, in this order, and why they are exact if a driver is killed or has a rival:
1. It starts the producer whose transactional id is the sink's. That fences every other driver of the sink.
2. It reads the last decision, and commits those of its transactions that are still open.
3. It claims the open transactions of the batch and of earlier ones: InitProducerId with KeepPreparedTxn gives
   it the only epoch that can end them. Each one to commit must be open, as its task prepared it.
4. It commits the decision, in one transaction of the sink's producer. **This is the commit point.** It fails
   if another driver has passed 1 since.
5. It commits and aborts what it has claimed, and returns when readers see the rows.

No driver D aborts a transaction of a decision that another driver made. If D passed 1 after it was made, D
sees it in 2. If D passed 1 before, D's own decision was durable before the other driver's 1, and so D claimed
before the other's 3, by which D's claims are fenced. If D ended one even before, the other found it not open,
and decided nothing.

If the driver is killed before 4, nothing is committed, and the next settlement aborts it all. Within 4: the
next 1 waits for the outcome. After 4: the next 2 does the rest, when Spark repeats the batch or calls
`abort`. A killed task leaves a transaction that no decision names: 3 and 5 abort it, also the open one of a
task that prepared nothing. A late attempt is fenced by 3; one that begins after that is aborted by the next
settlement. A broker makes each answer durable before it sends it.

Invariants: a settlement may be repeated anywhere, by any driver; nothing is aborted before 4 has succeeded.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from tidelog import client
from tidelog.client.admin.transactions import TransactionAdmin
from tidelog.client.errors import is_fenced
from tidelog.pipeline.exactly_once.decision import (
    NO_BATCH,
    Decision,
    ExactlyOnceError,
    TransactionName,
    another_driver,
    following,
    from_offsets,
    group_of,
    to_offsets,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.events import logger

_RETENTION: Final = "offsets.retention.minutes"
_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
# An operator's abort gives the id a new producer, so it is empty afterwards.
_ABORTED: Final = ("PrepareAbort", "CompleteAbort", "Empty")
_AT_ONCE: Final = 32
_RETRY_SECONDS: Final = 0.5
_VISIBLE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.005
_MS_PER_MINUTE: Final = 60_000
# No broker keeps decisions for less.
_LEAST_RETENTION_MS: Final = _MS_PER_MINUTE
_ResultT = TypeVar("_ResultT")


class Sink(NamedTuple):
    """A sink of exact delivery: its name, the way to its broker, and how long to try to settle a batch."""

    name: str
    cluster: ClusterConfig
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is known of a batch. `decision` is what to decide, None if the batch failed: then its transactions
    are aborted, unless an earlier execution of the batch was decided.

    `prepared` holds the producer id and epoch of each transaction to commit, `topic_ids` the topics that were
    written to, as text. `planned_ms` is when Spark planned the batch, None if that is not known.
    """

    batch: int
    decision: Decision | None = None
    prepared: Mapping[TransactionName, tuple[int, int]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    planned_ms: int | None = None


async def settle(sink: Sink, settlement: Settlement) -> int:
    """Settle a batch, again and again while the broker is away. Returns how many transactions it ended.

    Raises ExactlyOnceError, also if another driver has taken over, or ClientError if the broker stays away
    for `sink.timeout_ms`.
    """
    deadline = time.monotonic() + sink.timeout_ms / 1000
    while True:
        try:
            return await _settle_once(sink, settlement)
        except client.ClientError as error:
            if is_fenced(error):
                raise another_driver(sink.name) from error
            if not error.retriable or time.monotonic() + _RETRY_SECONDS > deadline:
                raise
            logger.warning("settlement_repeated", sink=sink.name, batch=settlement.batch, error=str(error))
            await asyncio.sleep(_RETRY_SECONDS)


async def _settle_once(sink: Sink, settlement: Settlement) -> int:
    group = group_of(sink.name)
    # From its start on, no other driver of the sink can decide anything that this one does not see.
    decider = client.Producer(cluster=sink.cluster, transactional_id=group)
    async with client.Admin(cluster=sink.cluster) as admin, decider:
        transactions = admin.transactions
        last = from_offsets(sink.name, await admin.groups.offsets(group, require_stable=True))
        now = last or Decision()
        if settlement.decision is not None:
            if last is None or last.batch == NO_BATCH:
                await _check_age(admin, settlement)
            now = following(sink.name, last, settlement.decision)
            if now.write != settlement.decision.write:
                logger.warning("batch_not_written_again", sink=sink.name, batch=settlement.batch)
        is_new = now is not last and settlement.decision is not None
        names = now.transactions(sink.name)
        ongoing = await _ongoing(transactions, sink.name, settlement.batch)
        finished = 0
        if last is not None:
            decided = last.transactions(sink.name)
            finished = await _finish(transactions, ongoing.intersection(decided))
            if now is last and settlement.decision is not None:
                await _check_not_aborted(transactions, last, set(decided) - ongoing)
            ongoing.difference_update(decided)
        winners = []
        if is_new:
            await _check_topics(admin, settlement.topic_ids)
            winners = await _claim_prepared(transactions, names, ongoing, settlement.prepared)
        losers = await _claim(transactions, ongoing.difference(names))
        if is_new or losers:
            async with decider.transaction():
                await decider.send_offsets_to_transaction(to_offsets(now), group)
        await _end(transactions, winners, is_commit=True)
        await _end(transactions, losers, is_commit=False)
        await _until_visible(transactions, {each.transactional_id for each in winners})
    if losers:
        logger.info("transactions_aborted", sink=sink.name, batch=settlement.batch, count=len(losers))
    return finished + len(winners) + len(losers)


async def _ongoing(transactions: TransactionAdmin, sink: str, batch: int) -> set[TransactionName]:
    """The open transactions of the sink, up to this batch."""
    listed = await transactions.list(states=["Ongoing"])
    names = (TransactionName.parse(each.transactional_id) for each in listed)
    return {name for name in names if name is not None and name.sink == sink and name.batch <= batch}


async def _finish(transactions: TransactionAdmin, names: Iterable[TransactionName]) -> int:
    """Commit what was decided and is still open. Returns how many that were."""
    claimed = await _claim(transactions, names)
    await _end(transactions, claimed, is_commit=True)
    return len(claimed)


async def _check_not_aborted(
    transactions: TransactionAdmin, decision: Decision, names: Iterable[TransactionName]
) -> None:
    """Raises ExactlyOnceError if one of these decided transactions was aborted."""
    for name in names:
        if await _state(transactions, name) in _ABORTED:
            raise ExactlyOnceError(
                f"transaction {str(name)!r} was aborted by hand after batch {decision.batch} was decided: its"
                " rows are lost, the other rows of the batch are stored. Write the lost rows by hand. Then"
                " start with a new checkpointLocation, after this batch"
            )


async def _claim_prepared(
    transactions: TransactionAdmin,
    names: Iterable[TransactionName],
    ongoing: set[TransactionName],
    prepared: Mapping[TransactionName, tuple[int, int]],
) -> list[client.ClaimedTransaction]:
    """The transactions to commit. Raises ExactlyOnceError unless each is as its task prepared it."""
    claimed = await _claim(transactions, ongoing.intersection(names))
    found = {each.transactional_id: each.transaction for each in claimed}
    for name in names:
        # An operator may have committed it already.
        is_committed = name not in ongoing and await _state(transactions, name) in _COMMITTED
        if not is_committed and found.get(str(name)) != prepared[name]:
            break
    else:
        return claimed
    raise ExactlyOnceError(
        f"transaction {str(name)!r} was ended before its batch was decided, by hand or by another driver on a"
        " copy of the checkpoint. Nothing of the batch is committed: start the query again"
    )


async def _claim(
    transactions: TransactionAdmin, names: Iterable[TransactionName]
) -> list[client.ClaimedTransaction]:
    """Those that still have a transaction."""
    claimed = await _all(transactions.claim(str(name)) for name in names)
    return [each for each in claimed if each.transaction is not None]


async def _end(
    transactions: TransactionAdmin, claimed: Iterable[client.ClaimedTransaction], *, is_commit: bool
) -> None:
    await _all(transactions.end(each, is_commit=is_commit) for each in claimed)


async def _until_visible(transactions: TransactionAdmin, committed: set[str]) -> None:
    """Wait until the markers of these are written, so that who reads after the write finds its rows. Nothing
    else depends on it, so it gives up after some seconds."""
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while committed and time.monotonic() < deadline:
        committed &= {each.transactional_id for each in await transactions.list(states=["PrepareCommit"])}
        await asyncio.sleep(_LOOK_SECONDS if committed else 0)


async def _state(transactions: TransactionAdmin, name: TransactionName) -> str | None:
    """None for an id that the broker has forgotten, since its transaction ended long ago."""
    try:
        return (await transactions.describe(str(name))).state
    except client.BrokerError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


async def _check_age(admin: client.Admin, settlement: Settlement) -> None:
    """The broker knows no decision of the sink. Raises ExactlyOnceError if it may have forgotten one about
    this batch."""
    if settlement.planned_ms is None:
        return
    age_ms = time.time() * 1000 - settlement.planned_ms
    if age_ms < _LEAST_RETENTION_MS:
        return
    node = (await admin.describe_cluster()).controller_id
    resource = client.ConfigResource(client.ConfigResourceType.BROKER, str(node))
    try:
        entries = (await admin.describe_configs([resource]))[resource]
    except client.AuthorizationError as error:
        raise ExactlyOnceError(
            f"batch {settlement.batch} was planned {age_ms / _MS_PER_MINUTE:.0f} minutes ago, and the sink"
            f" may not see how long the broker keeps decisions ({_RETENTION}), so it does not know whether"
            " the batch was committed. Nothing of this execution is committed: allow its user DescribeConfigs"
            " on the cluster, and start the query again"
        ) from error
    minutes = next((each.value for each in entries if each.name == _RETENTION), None)
    if minutes is not None and age_ms < int(minutes) * _MS_PER_MINUTE:
        return
    raise ExactlyOnceError(
        f"batch {settlement.batch} was planned {age_ms / _MS_PER_MINUTE:.0f} minutes ago, and the broker"
        f" keeps decisions for {minutes} minutes ({_RETENTION}), so it is not known whether it was committed."
        " Check whether the topics contain its rows. Then start with a new checkpointLocation, after the last"
        " row that they contain"
    )


async def _check_topics(admin: client.Admin, topic_ids: Mapping[str, str]) -> None:
    """Raises ExactlyOnceError if a topic is not the one that the tasks wrote to."""
    try:
        found = await admin.describe_topics(topic_ids)
    except client.UnknownTopicError as error:
        raise ExactlyOnceError(f"a topic was deleted while rows were written to it: {error}") from None
    for each in found:
        if str(each.topic_id) != topic_ids[each.name]:
            raise ExactlyOnceError(
                f"topic {each.name!r} was deleted and created again while rows were written to it, so some"
                " of them are gone. Nothing of the batch is committed: start the query again"
            )


async def _all(requests: Iterable[Awaitable[_ResultT]]) -> list[_ResultT]:
    """What these give, some of them at a time. Raises the first error after all have ended."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def limited(request: Awaitable[_ResultT]) -> _ResultT:
        async with limit:
            return await request

    outcomes = await asyncio.gather(*map(limited, requests), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
