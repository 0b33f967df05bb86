"""Transactions: their list, what they hold back, and an end by hand.

Owns the routes, and what each is called. A transaction is `overdue` when the broker aborts it at its next
look, `prepared` when no time aborts it (KIP-939), `ending` while its markers are written. It hangs (KIP-664)
where a partition has it open and its coordinator does not know it: it never ends.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypedDict

from msgspec import Meta

from tidelog.broker.console import shapes
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.condition import OpenTransaction
from tidelog.broker.console.route import ALL, OF_LEADER, OF_TRANSACTION, Console, Spread, listing, route
from tidelog.broker.coordinator.transactions.messages import Held
from tidelog.broker.coordinator.transactions.transaction import Transaction
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security import required_access as rights
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Pace

_MOST_PARTITIONS: Final = 500
_ABORT_TIMEOUT_MS: Final = 60_000


class PartitionPlace(TypedDict):
    """A partition that takes part in a transaction, or on which it was ended."""

    topic: str
    partition: int


class TransactionRow(TypedDict):
    """A transactional id. `start_ms` and `age_ms` are null without a transaction, `timeout_ms` is null where
    no time aborts it."""

    transactional_id: str
    state: Annotated[str, shapes.From("transaction.state.label")]
    condition: Literal["none", "ongoing", "overdue", "prepared", "ending"]
    producer_id: Annotated[int, shapes.From("transaction.producer.producer_id")]
    producer_epoch: Annotated[int, shapes.From("transaction.producer.epoch")]
    start_ms: int | None
    age_ms: int | None
    timeout_ms: int | None
    partition_count: int
    partitions: list[PartitionPlace]
    """Those in topics that the caller may describe, at most 500."""


class Transactions(shapes.Listed):
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
    last_stable_offset: Annotated[int, shapes.From("ends.last_stable")]
    high_watermark: Annotated[int, shapes.From("ends.high_watermark")]
    records_held_back: int
    open_transactions: int
    producer_id: int | None
    producer_epoch: int | None
    coordinator_epoch: int | None
    transactional_id: str | None
    first_offset: int | None
    idle_ms: int | None
    is_hanging: bool | None


class TransactionsAsked(shapes.Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(description="A part of the transactional id.")] = ""
    all: Annotated[bool, Meta(description="Also ids without a transaction now.")] = False


class TransactionAsked(shapes.Parameters, frozen=True, kw_only=True):
    transactional_id: str


class CommitAsked(TransactionAsked, frozen=True, kw_only=True):
    """Which prepared transaction is committed; another one of the id is not."""

    producer_id: shapes.ProducerId
    producer_epoch: shapes.ProducerEpoch


class HangingAsked(shapes.Parameters, frozen=True, kw_only=True):
    """Which transaction of which partition hangs."""

    topic: str
    partition: shapes.PartitionNumber
    producer_id: shapes.ProducerId
    producer_epoch: shapes.ProducerEpoch


def _row(caller: Caller, held: Held, now_ms: int) -> TransactionRow:
    transaction = held.transaction
    start_ms = None if transaction.state.is_idle else transaction.start_ms
    partitions = [
        {"topic": topic, "partition": index}
        for topic, index in sorted(transaction.partitions)
        if caller.may(rights.DESCRIBE_TOPIC, topic)
    ]
    return shapes.row_of(
        *(TransactionRow, held),
        condition=_condition(transaction, now_ms),
        start_ms=start_ms,
        age_ms=None if start_ms is None else max(now_ms - start_ms, 0),
        timeout_ms=transaction.timeout_ms if transaction.has_timeout else None,
        partition_count=len(transaction.partitions),
        partitions=partitions[:_MOST_PARTITIONS],
    )


def _condition(transaction: Transaction, now_ms: int) -> str:
    if transaction.state.is_idle:
        return "none"
    if transaction.state.is_decided:
        return "ending"
    if transaction.is_prepared:
        return "prepared"
    return "overdue" if transaction.is_timed_out(now_ms) else "ongoing"


def _longest_first(row: TransactionRow) -> tuple[bool, int]:
    return row["start_ms"] is None, row["start_ms"] or 0


@route("GET", "/transactions", spread=listing(_longest_first, "problems"))
async def transactions(console: Console, caller: Caller, asked: TransactionsAsked) -> Transactions:
    """The transactions, the longest first."""
    found: list[Held] = []
    problems = set()
    pace = Pace()
    async for held in console.services.transactions.listed(only_active=not asked.all):
        if isinstance(held, ApiError):
            problems.add(f"{held.code.name}: {held.message}")
        elif asked.search in held.transactional_id and caller.may(
            rights.DESCRIBE_TRANSACTION, held.transactional_id
        ):
            found.append(held)
        if pace.spent():
            await console.services.turns.next()
    found.sort(key=lambda held: (held.transaction.state.is_idle, held.transaction.start_ms))
    now_ms = console.services.transactions.now_ms()
    return shapes.part_of(
        Transactions, found, asked, lambda held: _row(caller, held, now_ms), problems=sorted(problems)
    )


@route("GET", "/transaction", needs=rights.DESCRIBE_TRANSACTION, spread=OF_TRANSACTION)
async def transaction(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    """One transactional id."""
    transactions = console.services.transactions
    held = Held(asked.transactional_id, await transactions.describe(asked.transactional_id))
    return _row(caller, held, transactions.now_ms())


class OpenTransactions(shapes.OfCluster):
    """Open transactions: id, producer id and partitions; whether all partitions of
    __transaction_state answered."""

    found: list[tuple[str, int, list[tuple[str, int]]]]
    is_complete: bool


class OpenAsked(shapes.Parameters, frozen=True, kw_only=True):
    producer_ids: tuple[int, ...]


def _joined_open(_: Services, answers: Mapping[int, OpenTransactions], asked: OpenAsked) -> OpenTransactions:
    found = [each for answer in answers.values() for each in answer["found"]]
    return {"found": found, "is_complete": all(answer["is_complete"] for answer in answers.values())}


@route("GET", "/open-transactions", is_public=False, spread=Spread(join=_joined_open))
async def open_here(console: Console, caller: Caller, asked: OpenAsked) -> OpenTransactions:
    """Those of these producers that this broker coordinates."""
    answer: OpenTransactions = {"found": [], "is_complete": True}
    wanted = {*asked.producer_ids}
    async for held in console.services.transactions.listed(only_active=True):
        if isinstance(held, ApiError):
            answer["is_complete"] = False
        elif (producer_id := held.transaction.producer.producer_id) in wanted:
            answer["found"].append((held.transactional_id, producer_id, sorted(held.transaction.partitions)))
    return answer


async def open_transactions(
    console: Console, caller: Caller, producer_ids: Iterable[int]
) -> tuple[dict[int, OpenTransaction], bool]:
    """By producer id, those of these producers that any coordinator knows, and whether each one answered."""
    asked = OpenAsked(producer_ids=tuple(sorted(producer_ids)))
    answer = await open_here.ask(console, caller, asked)
    known = {
        producer_id: OpenTransaction(name, producer_id, [(topic, index) for topic, index in partitions])
        for name, producer_id, partitions in answer["found"]
    }
    return known, answer["is_complete"] and not answer.get("unanswered")


@route("GET", "/transactions/held-back", spread=listing(lambda row: -row["records_held_back"]))
async def held_back(console: Console, caller: Caller, asked: shapes.Listing) -> shapes.Rows[HeldBack]:
    """The partitions whose last stable offset open transactions hold back, most records first."""
    services = console.services

    def is_held_back(replica: Replica) -> bool:
        # A follower's log has it too: its leader shows it.
        is_shown = (
            replica.log.transactions.first_unstable < replica.high_watermark and not replica.is_follower
        )
        return is_shown and caller.may(rights.DESCRIBE_TOPIC, replica.topic)

    found = await services.turns.run(shapes.chosen(list(services.replicas.values()), is_held_back))
    found.sort(key=lambda replica: replica.ends.last_stable - replica.ends.high_watermark)
    shown = found[asked.offset : asked.offset + asked.limit]
    unknown = dict.fromkeys(HeldBack.__annotations__)
    rows = [
        shapes.row_of(
            *(HeldBack, replica, unknown),
            records_held_back=replica.ends.high_watermark - replica.ends.last_stable,
            open_transactions=len(replica.log.transactions),
        )
        for replica in shown
    ]
    # Before the coordinators are asked: what ends in between is not taken for a transaction that hangs.
    oldest = [replica.log.transactions.oldest() for replica in shown]
    producer_ids = {each[0] for each in oldest if each is not None}
    known: dict[int, OpenTransaction] = {}
    is_complete = True
    if producer_ids:
        known, is_complete = await open_transactions(console, caller, producer_ids)

    def named(row: HeldBack, replica: Replica, first: tuple[int, int] | None) -> HeldBack:
        """With the transaction that holds the partition back, if it still does."""
        entry = None if first is None else replica.log.producers.entry(first[0])
        if first is None or entry is None or first != replica.log.transactions.oldest():
            return row
        held, idle_ms = known.get(first[0]), replica.log.idle_ms(entry, services.clock_ms())
        found: dict[str, object] = {"first_offset": first[1], "idle_ms": idle_ms}
        if held is not None and caller.may(rights.DESCRIBE_TRANSACTION, held.transactional_id):
            found["transactional_id"] = held.transactional_id
        if held is not None and (replica.topic, replica.partition) in held.partitions:
            found["is_hanging"] = False
        elif is_complete:
            found["is_hanging"] = True
        return shapes.row_of(HeldBack, found, entry, row)

    rows = list(map(named, rows, shown, oldest))
    return {"total": len(found), "offset": asked.offset, "limit": asked.limit, "rows": rows}


def _another(transactional_id: str, producer_id: int, producer_epoch: int) -> ApiError:
    message = f"the transaction of {transactional_id!r} has producer {producer_id} epoch {producer_epoch}"
    return ApiError(ErrorCode.INVALID_TXN_STATE, message)


async def _now(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    """Raises ApiError, also for who may not describe it."""
    caller.check_needs(transaction.needs, asked)
    found: TransactionRow = await transaction.handle(console, caller, asked)
    return found


async def _ongoing(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    found = await _now(console, caller, asked)
    if found["condition"] in ("none", "ending"):
        message = f"{asked.transactional_id!r} is {found['state']}: it has no open transaction"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
    return found


@route("POST", "/transaction/abort", needs=rights.WRITE_TRANSACTION, logged=ALL, spread=OF_TRANSACTION)
async def abort(console: Console, caller: Caller, asked: TransactionAsked) -> TransactionRow:
    """Abort a transaction and fence its producer."""
    await _ongoing(console, caller, asked)
    claimed = {"transactional_id": asked.transactional_id, "transaction_timeout_ms": _ABORT_TIMEOUT_MS}
    answer = await caller.ask(ApiKey.INIT_PRODUCER_ID, claimed)
    # It is aborted already, and its markers are being written.
    if answer["error_code"] != ErrorCode.CONCURRENT_TRANSACTIONS:
        check_code(answer["error_code"])
    return await _now(console, caller, asked)


@route("POST", "/transaction/commit", needs=rights.WRITE_TRANSACTION, logged=ALL, spread=OF_TRANSACTION)
async def commit(console: Console, caller: Caller, asked: CommitAsked) -> TransactionRow:
    """Commit a prepared transaction."""
    transactional_id, wanted = asked.transactional_id, (asked.producer_id, asked.producer_epoch)
    found = await _ongoing(console, caller, asked)
    if found["timeout_ms"] is not None:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the producer of {transactional_id!r} has not enabled two-phase commit, so nothing shows that"
            " it has sent everything: abort it, or wait for its timeout",
        )
    if wanted != (found["producer_id"], found["producer_epoch"]):
        raise _another(transactional_id, found["producer_id"], found["producer_epoch"])
    prepared = {"transaction_timeout_ms": shapes.INT32, "enable2_pc": True, "keep_prepared_txn": True}
    claimed = {"transactional_id": transactional_id, **prepared}
    client = await caller.change(ApiKey.INIT_PRODUCER_ID, claimed)
    kept = client["ongoing_txn_producer_id"], client["ongoing_txn_producer_epoch"]
    if kept != wanted:
        raise _another(transactional_id, *kept)
    producer = {name: client[name] for name in ("producer_id", "producer_epoch")}
    ending = {"transactional_id": transactional_id, "committed": True, **producer}
    await caller.change(ApiKey.END_TXN, ending)
    return await _now(console, caller, asked)


@route(
    "POST",
    "/transactions/held-back/abort",
    needs=rights.whole(rights.ALTER_CLUSTER, rights.CLUSTER_ACTION),
    logged=ALL,
    spread=OF_LEADER,
)
async def abort_hanging(console: Console, caller: Caller, asked: HangingAsked) -> PartitionPlace:
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
    if producer_id in known and (topic, partition) in known[producer_id].partitions:
        message = "its coordinator knows this transaction: abort it by its transactional id"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
    marker = {
        "producer_id": producer_id,
        "producer_epoch": asked.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": max(entry.coordinator_epoch, 0),
        "topics": [{"name": topic, "partition_indexes": [partition]}],
    }
    await caller.change(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})
    return {"topic": asked.topic, "partition": asked.partition}
