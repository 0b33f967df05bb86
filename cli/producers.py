"""`tidelog producers`: which idempotent producers the partitions of a topic remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import run
from cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Topic

if TYPE_CHECKING:
    from client import ProducerDescription, TopicPartition


def producers(
    topic: Topic,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; may be repeated.", show_default=False),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
) -> None:
    """Show id, epoch, last sequence and last timestamp of each producer that a topic remembers."""
    from cli.tables import format_timestamp, print_table

    found = run(_ask(topic, partitions, bootstrap_servers), bootstrap_servers)
    rows = [
        (
            where.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            format_timestamp(producer.last_timestamp),
        )
        for where, producers_there in found.items()
        for producer in sorted(producers_there)
    ]
    print_table(("PARTITION", "PRODUCER ID", "EPOCH", "LAST SEQUENCE", "LAST TIMESTAMP"), rows)


async def _ask(
    topic: str, partitions: list[int] | None, bootstrap_servers: str
) -> dict[TopicPartition, list[ProducerDescription]]:
    from client import Admin

    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        return await admin.describe_producers(topic, partitions)
