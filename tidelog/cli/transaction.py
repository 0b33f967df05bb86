"""`tidelog transaction`: list and describe transactions, and end one by hand.

A prepared transaction waits for its end without a timeout. It may be committed or aborted here. Any other
transaction may only be aborted, because nothing shows that its producer has sent everything.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from tidelog.cli.failures import Failure, run, run_with_admin
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, argument, option
from tidelog.cli.tables import counted, print_table
from tidelog.client import BrokerError
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.client import Admin, TransactionDescription

app = typer.Typer(no_args_is_help=True, help="List and describe transactions, commit or abort one by hand.")

TransactionalId: TypeAlias = Annotated[str, argument(metavar="TRANSACTIONAL_ID", help="Id of the producer.")]
_ONGOING = "Ongoing"
_MS_PER_SECOND = 1000


@app.command("list")
def list_transactions(
    every: Annotated[
        bool, typer.Option("--all", help="Also transactional ids without a transaction now.")
    ] = False,
    pattern: Annotated[
        str | None, option(metavar="REGEX", help="Only ids that this expression in RE2's syntax matches.")
    ] = None,
    as_json: AsJson = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Print the transactions that are not complete, the longest first."""

    async def look(admin: Admin) -> list[TransactionDescription]:
        names = [
            each.transactional_id
            for each in await admin.transactions.list(pattern)
            if every or each.state in (_ONGOING, "PrepareCommit", "PrepareAbort")
        ]
        return [await admin.transactions.describe(name) for name in names]

    found = run_with_admin(look, cluster)
    now_ms = time.time_ns() // 1_000_000
    found.sort(key=lambda each: now_ms if each.start_ms is None else each.start_ms)
    none = None if as_json else "none"
    rows = [
        (
            each.transactional_id,
            each.state,
            each.producer_id,
            each.producer_epoch,
            _seconds_since(each.start_ms, now_ms),
            none if each.timeout_ms is None else each.timeout_ms // _MS_PER_SECOND,
        )
        for each in found
    ]
    columns = ("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "EPOCH", "AGE (S)", "TIMEOUT (S)")
    print_table(columns, rows, as_json=as_json)


def _seconds_since(start_ms: int | None, now_ms: int) -> object:
    return None if start_ms is None else max(now_ms - start_ms, 0) // _MS_PER_SECOND


@app.command()
def describe(
    transactional_id: TransactionalId, as_json: AsJson = False, cluster: ToCluster = DEFAULT_CLUSTER
) -> None:
    """Show state, producer and partitions of a transaction."""
    found = run_with_admin(lambda admin: _of(admin, transactional_id), cluster)
    if as_json:
        partitions = [where._asdict() for where in found.partitions]
        print(json.dumps({**found._asdict(), "partitions": partitions}))
        return
    age = _seconds_since(found.start_ms, time.time_ns() // 1_000_000)
    timeout = "no timeout" if found.timeout_ms is None else f"timeout {found.timeout_ms} ms"
    print(f"{found.transactional_id}  {found.state}  began {age} s ago  {timeout}")
    print(f"producer {found.producer_id} epoch {found.producer_epoch}")
    print_table(("TOPIC", "PARTITION"), [tuple(where) for where in found.partitions])


async def _of(admin: Admin, transactional_id: str) -> TransactionDescription:
    """The id, which must exist: a request to end the transaction of an unknown id would create it."""
    try:
        return await admin.transactions.describe(transactional_id)
    except BrokerError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    raise Failure(
        f"there is no transactional id {transactional_id!r}; `tidelog transaction list --all` shows all"
    )


async def _ongoing(admin: Admin, transactional_id: str) -> TransactionDescription:
    found = await _of(admin, transactional_id)
    if found.state != _ONGOING:
        raise Failure(f"{transactional_id!r} is {found.state}: it has no open transaction")
    return found


@app.command()
def commit(
    transactional_id: TransactionalId,
    producer_id: Annotated[int | None, option(help="Only if the transaction has this producer id.")] = None,
    producer_epoch: Annotated[int | None, option(help="Only if the transaction has this epoch.")] = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Commit a prepared transaction. Its producer cannot continue it."""

    async def work(admin: Admin) -> None:
        found = await _ongoing(admin, transactional_id)
        if found.timeout_ms is not None:
            raise Failure(
                f"the producer of {transactional_id!r} has not enabled two-phase commit, so its transaction "
                "is not prepared: abort it, or wait for its timeout"
            )
        pair = found.producer_id, found.producer_epoch
        if producer_id not in (None, pair[0]) or producer_epoch not in (None, pair[1]):
            raise Failure(f"the transaction of {transactional_id!r} has producer {pair[0]} epoch {pair[1]}")
        await admin.transactions.commit_prepared(transactional_id, pair)

    run_with_admin(work, cluster)
    print(f"committed {transactional_id}")


@app.command()
def abort(transactional_id: TransactionalId, cluster: ToCluster = DEFAULT_CLUSTER) -> None:
    """Abort a transaction, prepared or not. Its producer is fenced."""

    async def work(admin: Admin) -> None:
        await _ongoing(admin, transactional_id)
        await admin.transactions.abort(transactional_id)

    run_with_admin(work, cluster)
    print(f"aborted {transactional_id}")


@app.command()
def settle(
    sink: Annotated[str, argument(metavar="SINK", help="Id of the query, or its exactly_once.name.")],
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """End the transactions of a Spark query that will not start again.

    This is for queries with delivery=exactly_once. Decided transactions are committed, the others are
    aborted.
    """
    from tidelog.pipeline.exactly_once.decision import ExactlyOnceError
    from tidelog.pipeline.exactly_once.settling import Settlement, Sink, settle

    try:
        where = Sink(sink, cluster, cluster.request_timeout_ms)
        ended = run(settle(where, Settlement(sys.maxsize)), cluster)
    except ExactlyOnceError as error:
        raise Failure(str(error)) from None
    print(f"ended {counted(ended, 'transaction')} of {sink}")
