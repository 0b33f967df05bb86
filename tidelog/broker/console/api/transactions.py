"""Transactions: their list, what they hold back, and an end by hand.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.answering import answer_of_cluster
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Listing, Page, Parameters, route
from tidelog.broker.console.spread import OF_LEADER, OF_TRANSACTION, listing
from tidelog.broker.console.views import transactions as view
from tidelog.broker.security.required_access import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_TRANSACTION,
    WRITE_TRANSACTION,
    whole,
)

_ProducerId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_ProducerEpoch = Annotated[int, Meta(ge=0, le=2**15 - 1)]
_DESCRIBE = whole(DESCRIBE_TRANSACTION, field="transactional_id")
_WRITE = whole(WRITE_TRANSACTION, field="transactional_id")


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


def _longest_first(row: view.TransactionRow) -> tuple[bool, int]:
    return row["start_ms"] is None, row["start_ms"] or 0


@route("GET", "/api/v1/transactions", spread=listing(_longest_first, "problems"))
async def transactions_route(console: Console, caller: Caller, asked: TransactionsAsked) -> view.Transactions:
    """The transactions, the longest first."""
    return await view.listed(
        console.services, caller, asked.search, has_idle=asked.all, offset=asked.offset, limit=asked.limit
    )


@route("GET", "/api/v1/transaction", needs=(_DESCRIBE,), spread=OF_TRANSACTION)
async def _transaction(console: Console, caller: Caller, asked: TransactionAsked) -> view.TransactionRow:
    """One transactional id."""
    return await view.described(console.services, caller, asked.transactional_id)


@route("GET", "/api/v1/transactions/held-back", spread=listing(lambda row: -row["records_held_back"]))
async def _held_back(console: Console, caller: Caller, asked: Listing) -> view.HeldBackPartitions:
    """The partitions whose last stable offset open transactions hold back."""
    return await view.held_back(
        console.services, caller, partial(open_transactions, console, caller), asked.offset, asked.limit
    )


async def _most_held_back(console: Console, caller: Caller, asked: Parameters) -> view.HeldBackPartitions:
    """The first of them: the query of the page is that of its transactions."""
    answer: view.HeldBackPartitions = await answer_of_cluster(console, _held_back, caller, Listing())
    return answer


@route(
    "POST", "/api/v1/transaction/abort", needs=(_WRITE,), logged=("transactional_id",), spread=OF_TRANSACTION
)
async def _abort(console: Console, caller: Caller, asked: TransactionAsked) -> view.TransactionRow:
    """Abort a transaction and fence its producer."""
    return await view.abort(console.services, caller, asked.transactional_id)


@route(
    "POST",
    "/api/v1/transaction/commit",
    needs=(_WRITE,),
    logged=("transactional_id", "producer_id", "producer_epoch"),
    spread=OF_TRANSACTION,
)
async def _commit(console: Console, caller: Caller, asked: CommitAsked) -> view.TransactionRow:
    """Commit a prepared transaction."""
    return await view.commit(
        console.services, caller, asked.transactional_id, asked.producer_id, asked.producer_epoch
    )


@route(
    "POST",
    "/api/v1/transactions/held-back/abort",
    needs=(whole(ALTER_CLUSTER, CLUSTER_ACTION),),
    logged=("topic", "partition", "producer_id", "producer_epoch"),
    spread=OF_LEADER,
)
async def _abort_hanging(console: Console, caller: Caller, asked: HangingAsked) -> Aborted:
    """Abort a transaction that its coordinator does not know, on one partition."""
    await view.abort_hanging(
        console.services,
        caller,
        partial(open_transactions, console, caller),
        asked.topic,
        asked.partition,
        asked.producer_id,
        asked.producer_epoch,
    )
    return {"topic": asked.topic, "partition": asked.partition}


class OpenAsked(Parameters, frozen=True, kw_only=True):
    """The producer ids whose open transactions are asked for."""

    producer_ids: tuple[int, ...]


async def open_transactions(
    console: Console, caller: Caller, producer_ids: Sequence[int]
) -> tuple[dict[int, view.OpenTransaction], bool]:
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
            known[producer_id] = view.OpenTransaction(name, producer_id, places)
    return known, is_complete


@route("GET", "/open")
async def open_here(
    console: Console, caller: Caller, asked: OpenAsked
) -> tuple[list[view.OpenTransaction], bool]:
    """Transactions that are open."""
    return await view.open_here(console.services, set(asked.producer_ids))


PAGES: Final[Sequence[Page]] = (
    Page(
        "/console/transactions",
        "Transactions",
        "transactions.html",
        {
            "transactions": transactions_route,
            "held_back": _held_back._replace(handle=_most_held_back, parameters=Parameters, spread=None),
        },
    ),
)
