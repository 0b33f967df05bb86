"""Transactions: their list, what they hold back, and an end by hand.

Owns the routes and pages, and what each is called. A transaction is `overdue` when the broker aborts it at
its next look, `prepared` when no time aborts it (KIP-939), `ending` while its markers are written. It hangs
(KIP-664) where a partition has it open and its coordinator does not know it: it never ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from tidelog.broker.console.answering import answer_of_cluster
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.spread import OF_LEADER, OF_TRANSACTION, listing
from tidelog.broker.console.views.condition import OpenTransaction
from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.broker.coordinator.transactions.messages import Held
from tidelog.broker.coordinator.transactions.transaction import Transaction
from tidelog.broker.security import required_access as rights
from tidelog.broker.security.required_access import whole
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Pace, Steps

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf

_MOST_PARTITIONS: Final = 500
_ABORT_TIMEOUT_MS: Final = 60_000
_NO_TIMEOUT_MS: Final = 2**31 - 1


class TransactionPartition(TypedDict):
    """A partition that takes part in a transaction."""

    topic: str
    partition: int


class TransactionRow(TypedDict):
    """A transactional id. `start_ms` and `age_ms` are null without a transaction, `timeout_ms` is null where
    no time aborts it."""

    transactional_id: str
    state: str
    condition: Literal["none", "ongoing", "overdue", "prepared", "ending"]
    producer_id: int
    producer_epoch: int
    start_ms: int | None
    age_ms: int | None
    timeout_ms: int | None
    partition_count: int
    partitions: list[TransactionPartition]
    """Those in topics that the caller may describe, at most 500."""


class Transactions(OfCluster, Listed):
    """A page of transactional ids, the longest transaction first. `problems`: partitions of
    __transaction_state that cannot list theirs, by their error."""

    rows: list[TransactionRow]
    problems: list[str]


class HeldBack(TypedDict):
    """A partition with open transactions. Consumers of committed records read up to `last_stable_offset`
    only. The rest is of the transaction that holds it back: it hangs if `is_hanging`, null where that is not
    known."""

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    records_held_back: int
    open_transactions: int
    producer_id: int | None
    producer_epoch: int | None
    coordinator_epoch: int | None
    transactional_id: str | None
    first_offset: int | None
    idle_ms: int | None
    is_hanging: bool | None


class HeldBackPartitions(OfCluster, Listed):
    """A page of partitions, most records held back first."""

    rows: list[HeldBack]


async def described(services: Services, caller: Caller, transactional_id: str) -> TransactionRow:
    """One transactional id. Raises ApiError."""
    caller.check(rights.DESCRIBE_TRANSACTION, transactional_id)
    held = Held(transactional_id, await services.transactions.describe(transactional_id))
    return _row(caller, held, services.transactions.now_ms())


def _row(caller: Caller, held: Held, now_ms: int) -> TransactionRow:
    transaction = held.transaction
    has_one = not transaction.state.is_idle
    partitions: list[TransactionPartition] = [
        {"topic": topic, "partition": index}
        for topic, index in sorted(transaction.partitions)
        if caller.may(rights.DESCRIBE_TOPIC, topic)
    ]
    return {
        "transactional_id": held.transactional_id,
        "state": transaction.state.label,
        "condition": _condition(transaction, now_ms),
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.epoch,
        "start_ms": transaction.start_ms if has_one else None,
        "age_ms": max(now_ms - transaction.start_ms, 0) if has_one else None,
        "timeout_ms": transaction.timeout_ms if transaction.has_timeout else None,
        "partition_count": len(transaction.partitions),
        "partitions": partitions[:_MOST_PARTITIONS],
    }


def _condition(
    transaction: Transaction, now_ms: int
) -> Literal["none", "ongoing", "overdue", "prepared", "ending"]:
    if transaction.state.is_idle:
        return "none"
    if transaction.state.is_decided:
        return "ending"
    if transaction.is_prepared:
        return "prepared"
    return "overdue" if transaction.is_timed_out(now_ms) else "ongoing"


async def _open_of(services: Services, producer_ids: Collection[int]) -> tuple[list[OpenTransaction], bool]:
    """Those of these producers that this broker coordinates, and whether all its partitions answered."""
    found, is_complete = [], True
    async for held in services.transactions.listed(only_active=True):
        if isinstance(held, ApiError):
            is_complete = False
        elif (producer_id := held.transaction.producer.producer_id) in producer_ids:
            partitions = sorted(held.transaction.partitions)
            found.append(OpenTransaction(held.transactional_id, producer_id, partitions))
    return found, is_complete


def _with_open(services: Services, may_describe: Callable[[str], bool]) -> Steps[list[HeldBack]]:
    pace = Pace()
    rows: list[HeldBack] = []
    for (topic, partition), replica in list(services.replicas.items()):
        transactions = replica.log.transactions
        # A follower's log has it too: its leader shows it.
        is_held_back = transactions.first_unstable < replica.high_watermark and not replica.is_follower
        if is_held_back and may_describe(topic):
            ends = replica.ends
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "last_stable_offset": ends.last_stable,
                    "high_watermark": ends.high_watermark,
                    "records_held_back": ends.high_watermark - ends.last_stable,
                    "open_transactions": len(transactions),
                    "producer_id": None,
                    "producer_epoch": None,
                    "coordinator_epoch": None,
                    "transactional_id": None,
                    "first_offset": None,
                    "idle_ms": None,
                    "is_hanging": None,
                }
            )
        if pace.spent():
            yield
    return rows


def _oldest(services: Services, topic: str, partition: int) -> tuple[int, int] | None:
    """Producer id and first offset of the transaction that holds a partition back."""
    replica = services.replicas.get((topic, partition))
    return None if replica is None else replica.log.transactions.oldest()


def _name(
    services: Services,
    caller: Caller,
    row: HeldBack,
    oldest: tuple[int, int] | None,
    known: Mapping[int, OpenTransaction],
    *,
    is_complete: bool,
) -> None:
    """Say which transaction holds the partition back, if it still does."""
    replica = services.replicas.get((row["topic"], row["partition"]))
    if replica is None or oldest is None or oldest != replica.log.transactions.oldest():
        return
    producer_id, first_offset = oldest
    entry = replica.log.producers.entry(producer_id)
    if entry is None:
        return
    held = known.get(producer_id)
    if held is not None and caller.may(rights.DESCRIBE_TRANSACTION, held.transactional_id):
        row["transactional_id"] = held.transactional_id
    row["producer_id"], row["first_offset"] = producer_id, first_offset
    row["producer_epoch"], row["coordinator_epoch"] = entry.producer_epoch, entry.coordinator_epoch
    row["idle_ms"] = replica.log.idle_ms(entry, services.clock_ms())
    if held is not None and _takes_part(held, row["topic"], row["partition"]):
        row["is_hanging"] = False
    elif is_complete:
        row["is_hanging"] = True


def _takes_part(held: OpenTransaction, topic: str, partition: int) -> bool:
    return (topic, partition) in held.partitions


def _another(transactional_id: str, producer_id: int, producer_epoch: int) -> ApiError:
    message = f"the transaction of {transactional_id!r} has producer {producer_id} epoch {producer_epoch}"
    return ApiError(ErrorCode.INVALID_TXN_STATE, message)


async def _ongoing(services: Services, caller: Caller, transactional_id: str) -> TransactionRow:
    found = await described(services, caller, transactional_id)
    if found["condition"] in ("none", "ending"):
        message = f"{transactional_id!r} is {found['state']}: it has no open transaction"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
    return found


_ProducerId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_ProducerEpoch = Annotated[int, Meta(ge=0, le=2**15 - 1)]
_DESCRIBE = whole(rights.DESCRIBE_TRANSACTION, field="transactional_id")
_WRITE = whole(rights.WRITE_TRANSACTION, field="transactional_id")


class TransactionsAsked(Listing, frozen=True, kw_only=True):
    """Which transactional ids are listed."""

    search: Annotated[str, Meta(description="A part of the transactional id.")] = ""
    all: Annotated[bool, Meta(description="Also ids without a transaction now.")] = False


class TransactionAsked(Parameters, frozen=True, kw_only=True):
    """The transactional id whose transaction is shown or ended."""

    transactional_id: str


class CommitAsked(TransactionAsked, frozen=True, kw_only=True):
    """Which prepared transaction is committed; another one of the id is not."""

    producer_id: _ProducerId
    producer_epoch: _ProducerEpoch


class HangingAsked(Parameters, frozen=True, kw_only=True):
    """Which transaction of which partition hangs."""

    topic: str
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    producer_id: _ProducerId
    producer_epoch: _ProducerEpoch


class Aborted(TypedDict):
    """The partition on which the transaction was ended."""

    topic: str
    partition: int


def _longest_first(row: TransactionRow) -> tuple[bool, int]:
    return row["start_ms"] is None, row["start_ms"] or 0


@route("GET", "/transactions", spread=listing(_longest_first, "problems"))
async def transactions_route(console: Console, caller: Caller, asked: TransactionsAsked) -> Transactions:
    """The transactions, the longest first."""
    found: list[Held] = []
    problems = []
    pace = Pace()
    async for held in console.services.transactions.listed(only_active=not asked.all):
        if isinstance(held, ApiError):
            problems.append(f"{held.code.name}: {held.message}")
        elif asked.search in held.transactional_id and caller.may(
            rights.DESCRIBE_TRANSACTION, held.transactional_id
        ):
            found.append(held)
        if pace.spent():
            await console.services.turns.next()
    found.sort(key=lambda held: (held.transaction.state.is_idle, held.transaction.start_ms))
    now_ms = console.services.transactions.now_ms()
    return {
        "total": len(found),
        "offset": asked.offset,
        "limit": asked.limit,
        "rows": [_row(caller, held, now_ms) for held in found[asked.offset : asked.offset + asked.limit]],
        "problems": sorted(set(problems)),
    }


@route("GET", "/transaction", needs=_DESCRIBE, spread=OF_TRANSACTION)
async def _transaction(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    """One transactional id."""
    return await described(console.services, caller, asked.transactional_id)


@route("GET", "/transactions/held-back", spread=listing(lambda row: -row["records_held_back"]))
async def _held_back(console: Console, caller: Caller, asked: Listing) -> HeldBackPartitions:
    """The partitions whose last stable offset open transactions hold back."""
    services = console.services
    found = await services.turns.run(_with_open(services, partial(caller.may, rights.DESCRIBE_TOPIC)))
    found.sort(key=lambda row: row["records_held_back"], reverse=True)
    rows = found[asked.offset : asked.offset + asked.limit]
    # After the partitions were read: what ended in between is not taken for a transaction that hangs.
    oldest = {
        place: _oldest(services, *place) for place in ((row["topic"], row["partition"]) for row in rows)
    }
    producer_ids = sorted({each[0] for each in oldest.values() if each is not None})
    known, is_complete = (
        await open_transactions(console, caller, producer_ids) if producer_ids else ({}, True)
    )
    for row in rows:
        _name(services, caller, row, oldest[row["topic"], row["partition"]], known, is_complete=is_complete)
    return {"total": len(found), "offset": asked.offset, "limit": asked.limit, "rows": rows}


async def _most_held_back(console: Console, caller: Caller, asked: Parameters) -> HeldBackPartitions:
    """The first of them: the query of the page is that of its transactions."""
    answer: HeldBackPartitions = await answer_of_cluster(console, _held_back, caller, Listing())
    return answer


@route("POST", "/transaction/abort", needs=_WRITE, logged=("transactional_id",), spread=OF_TRANSACTION)
async def _abort(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    """Abort a transaction and fence its producer."""
    await _ongoing(console.services, caller, asked.transactional_id)
    claimed: DictOf[types.InitProducerIdRequest] = {
        "transactional_id": asked.transactional_id,
        "transaction_timeout_ms": _ABORT_TIMEOUT_MS,
    }
    answer = await caller.ask(ApiKey.INIT_PRODUCER_ID, claimed)
    # It is aborted already, and its markers are being written.
    if answer["error_code"] != ErrorCode.CONCURRENT_TRANSACTIONS:
        check_code(answer["error_code"])
    return await described(console.services, caller, asked.transactional_id)


@route(
    "POST",
    "/transaction/commit",
    needs=_WRITE,
    logged=("transactional_id", "producer_id", "producer_epoch"),
    spread=OF_TRANSACTION,
)
async def _commit(console: Console, caller: Caller, asked: CommitAsked) -> TransactionRow:
    """Commit a prepared transaction."""
    transactional_id, wanted = asked.transactional_id, (asked.producer_id, asked.producer_epoch)
    found = await _ongoing(console.services, caller, transactional_id)
    if found["timeout_ms"] is not None:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the producer of {transactional_id!r} has not enabled two-phase commit, so nothing shows that"
            " it has sent everything: abort it, or wait for its timeout",
        )
    if wanted != (found["producer_id"], found["producer_epoch"]):
        raise _another(transactional_id, found["producer_id"], found["producer_epoch"])
    claimed: DictOf[types.InitProducerIdRequest] = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": _NO_TIMEOUT_MS,
        "enable2_pc": True,
        "keep_prepared_txn": True,
    }
    client = await caller.ask(ApiKey.INIT_PRODUCER_ID, claimed)
    check_code(client["error_code"])
    kept = client["ongoing_txn_producer_id"], client["ongoing_txn_producer_epoch"]
    if kept != wanted:
        raise _another(transactional_id, *kept)
    ending: DictOf[types.EndTxnRequest] = {
        "transactional_id": transactional_id,
        "producer_id": client["producer_id"],
        "producer_epoch": client["producer_epoch"],
        "committed": True,
    }
    check_code((await caller.ask(ApiKey.END_TXN, ending))["error_code"])
    return await described(console.services, caller, transactional_id)


@route(
    "POST",
    "/transactions/held-back/abort",
    needs=whole(rights.ALTER_CLUSTER, rights.CLUSTER_ACTION),
    logged=("topic", "partition", "producer_id", "producer_epoch"),
    spread=OF_LEADER,
)
async def _abort_hanging(console: Console, caller: Caller, asked: HangingAsked) -> Aborted:
    """Abort a transaction that its coordinator does not know, on one partition."""
    topic, partition, producer_id = asked.topic, asked.partition, asked.producer_id
    caller.check(rights.DESCRIBE_TOPIC, topic)
    entry = console.services.replica(topic, partition).log.producers.entry(producer_id)
    if entry is None or entry.producer_epoch != asked.producer_epoch or entry.current_txn_start_offset < 0:
        message = f"producer {producer_id} epoch {asked.producer_epoch} has no open transaction there"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
    known, is_complete = await open_transactions(console, caller, [producer_id])
    if not is_complete:
        message = "a coordinator does not answer, so nothing shows that the transaction hangs: try again"
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    if producer_id in known and _takes_part(known[producer_id], topic, partition):
        message = "its coordinator knows this transaction: abort it by its transactional id"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
    markers = {
        "markers": [
            {
                "producer_id": producer_id,
                "producer_epoch": asked.producer_epoch,
                "transaction_result": False,
                "coordinator_epoch": max(entry.coordinator_epoch, 0),
                "topics": [{"name": topic, "partition_indexes": [partition]}],
            }
        ]
    }
    answer = await caller.ask(ApiKey.WRITE_TXN_MARKERS, markers)
    check_code(answer["markers"][0]["topics"][0]["partitions"][0]["error_code"])
    return {"topic": asked.topic, "partition": asked.partition}


class OpenAsked(Parameters, frozen=True, kw_only=True):
    """The producer ids whose open transactions are asked for."""

    producer_ids: tuple[int, ...]


async def open_transactions(
    console: Console, caller: Caller, producer_ids: Sequence[int]
) -> tuple[dict[int, OpenTransaction], bool]:
    """By producer id, those of these producers that any coordinator knows, and whether each one answered."""
    asked = OpenAsked(producer_ids=tuple(producer_ids))
    own = await open_here.handle(console, caller, asked)
    answers: dict[int, Any] = {}
    unanswered: list[int] = []
    if not console.others.is_alone:
        answers, unanswered = await console.others.ask_all(caller, open_here, asked)
    known = {}
    is_complete = not unanswered
    for rows, is_whole in (own, *answers.values()):
        is_complete = is_complete and is_whole
        for name, producer_id, partitions in rows:
            places = [(topic, partition) for topic, partition in partitions]
            known[producer_id] = OpenTransaction(name, producer_id, places)
    return known, is_complete


@route("GET", "/open", is_public=False)
async def open_here(console: Console, caller: Caller, asked: OpenAsked) -> tuple[list[OpenTransaction], bool]:
    """Transactions that are open."""
    return await _open_of(console.services, set(asked.producer_ids))


PAGES: Final[Sequence[Page]] = (
    page(
        "/transactions",
        "Transactions",
        "transactions",
        transactions=transactions_route,
        held_back=_held_back._replace(handle=_most_held_back, parameters=Parameters, spread=None),
    ),
)
