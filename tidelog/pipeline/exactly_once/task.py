"""One attempt of a task: its rows go into a transaction, which is prepared and left open.

Owns the start and the end of that transaction in the task. `pipeline.exactly_once.writer` says who ends it.

Invariants: without rows there is no transaction. An attempt that fails aborts its transaction if it can;
otherwise the driver does. What is returned as prepared is stored, all of it.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.client import AuthorizationError, ClientError, Producer, UnsupportedVersionError
from tidelog.client.errors import is_fenced
from tidelog.pipeline.exactly_once.decision import PREFIX, ExactlyOnceError, TransactionName, another_driver
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.sink.rows import chunks
from tidelog.pipeline.sink.sending import BatchSender, LoopThread, make_producer, send_rows

_ABORT_MS = 10_000


class PreparedRows(NamedTuple):
    """What an attempt wrote: the producer id and epoch of its transaction, None without rows, the number of
    rows, and the ids of the topics, as text."""

    transaction: tuple[int, int] | None
    rows: int
    topic_ids: dict[str, str]


def write_prepared(options: SinkOptions, name: TransactionName, batches: Iterable[Any]) -> PreparedRows:
    """Write the rows of Arrow batches into a transaction of this name, and prepare it.

    Raises ExactlyOnceError if the broker cannot prepare it, or another driver has ended it; ClientError,
    OptionError.
    """
    try:
        return _write(options, name, batches)
    except ClientError as error:
        if is_fenced(error):
            raise another_driver(name.sink) from error
        raise


def _write(options: SinkOptions, name: TransactionName, batches: Iterable[Any]) -> PreparedRows:
    written = 0
    with LoopThread() as loop:
        sender = BatchSender(make_producer(options, transactional_id=str(name)))
        producer = sender.producer
        try:
            for table in chunks(batches):
                if not written:
                    loop.run(_begin(producer))
                written += send_rows(options, sender, loop, table)
            if not written:
                return PreparedRows(None, 0, {})
            loop.run(sender.finish())
            prepared = loop.run(producer.prepare())
            topic_ids = {topic: each.topic_id for topic, each in sender.topics.items()}
            return PreparedRows((prepared.producer_id, prepared.producer_epoch), written, topic_ids)
        finally:
            # Prepared transactions stay prepared. Any other transaction is aborted.
            loop.run(producer.stop(_ABORT_MS))


async def _begin(producer: Producer) -> None:
    try:
        await producer.start()
    except (UnsupportedVersionError, AuthorizationError) as error:
        raise _no_prepared_transactions(error) from error
    await producer.begin_transaction()


def _no_prepared_transactions(error: ClientError) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"delivery=exactly_once needs prepared transactions (KIP-939), and the broker refuses them: {error}."
        f" Set transaction.two.phase.commit.enable=true on the broker, and let"
        f" transaction.two.phase.commit.allowed.ids name {PREFIX}*. With ACLs, allow Write and TwoPhaseCommit"
        f" on transactional ids with the prefix {PREFIX}. On a broker without them use"
        " delivery=mirror for rows of a topic, or at_least_once"
    )
