"""Transactions: their list, what they hold back, and an end by hand.

Owns the routes and pages of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console, Listing, Page, Parameters
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

    text: Annotated[str, Meta(description="A part of the transactional id.")] = ""
    all: Annotated[bool, Meta(description="Also ids without a transaction now.")] = False


class TransactionAsked(Parameters, frozen=True, kw_only=True):
    """Whose transaction is meant."""

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


async def _transactions(console: Console, caller: Caller, asked: TransactionsAsked) -> view.Transactions:
    return await view.listed(
        console.services, caller, asked.text, has_idle=asked.all, offset=asked.offset, limit=asked.limit
    )


async def _transaction(console: Console, caller: Caller, asked: TransactionAsked) -> view.TransactionRow:
    return await view.described(console.services, caller, asked.transactional_id)


async def _held_back(console: Console, caller: Caller, asked: Listing) -> view.HeldBackPartitions:
    return await view.held_back(console.services, caller, asked.offset, asked.limit)


async def _most_held_back(console: Console, caller: Caller, asked: Parameters) -> view.HeldBackPartitions:
    """The first of them: the query of the page is that of its transactions."""
    return await _held_back(console, caller, Listing())


async def _abort(console: Console, caller: Caller, asked: TransactionAsked) -> view.TransactionRow:
    return await view.abort(console.services, caller, asked.transactional_id)


async def _commit(console: Console, caller: Caller, asked: CommitAsked) -> view.TransactionRow:
    return await view.commit(
        console.services, caller, asked.transactional_id, asked.producer_id, asked.producer_epoch
    )


async def _abort_hanging(console: Console, caller: Caller, asked: HangingAsked) -> Aborted:
    await view.abort_hanging(
        console.services, caller, asked.topic, asked.partition, asked.producer_id, asked.producer_epoch
    )
    return {"topic": asked.topic, "partition": asked.partition}


TRANSACTIONS: Final = ApiRoute(
    "GET",
    "/api/v1/transactions",
    _transactions,
    TransactionsAsked,
    view.Transactions,
    "The transactions, the longest first.",
)
TRANSACTION: Final = ApiRoute(
    "GET",
    "/api/v1/transaction",
    _transaction,
    TransactionAsked,
    view.TransactionRow,
    "One transactional id.",
    (_DESCRIBE,),
)
HELD_BACK: Final = ApiRoute(
    "GET",
    "/api/v1/transactions/held-back",
    _held_back,
    Listing,
    view.HeldBackPartitions,
    "The partitions whose last stable offset open transactions hold back.",
)
ABORT: Final = ApiRoute(
    "POST",
    "/api/v1/transaction/abort",
    _abort,
    TransactionAsked,
    view.TransactionRow,
    "Abort a transaction and fence its producer.",
    (_WRITE,),
    logged=("transactional_id",),
)
COMMIT: Final = ApiRoute(
    "POST",
    "/api/v1/transaction/commit",
    _commit,
    CommitAsked,
    view.TransactionRow,
    "Commit a prepared transaction.",
    (_WRITE,),
    logged=("transactional_id", "producer_id", "producer_epoch"),
)
ABORT_HANGING: Final = ApiRoute(
    "POST",
    "/api/v1/transactions/held-back/abort",
    _abort_hanging,
    HangingAsked,
    Aborted,
    "Abort a transaction that its coordinator does not know, on one partition.",
    (whole(ALTER_CLUSTER, CLUSTER_ACTION),),
    logged=("topic", "partition", "producer_id", "producer_epoch"),
)

ROUTES: Final[Sequence[ApiRoute]] = (TRANSACTIONS, TRANSACTION, HELD_BACK, ABORT, COMMIT, ABORT_HANGING)
PAGES: Final[Sequence[Page]] = (
    Page(
        "/console/transactions",
        "Transactions",
        "transactions.html",
        {
            "transactions": TRANSACTIONS,
            "held_back": HELD_BACK._replace(handle=_most_held_back, parameters=Parameters),
        },
    ),
)
