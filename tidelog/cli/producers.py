"""`tidelog producers`: which idempotent producers the partitions of a topic remember.

DescribeProducers gives their ids and last sequences; every broker from Kafka 2.8 on answers it. Only Tidelog
gives the batches that it would recognise, on its HTTP port. If that port does not answer, the column stays
empty, and one line on standard error says why.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import urlencode

from tidelog.cli.failures import run_with_admin
from tidelog.cli.http_port import HttpAddress, NoAnswerError, ask, find, url
from tidelog.cli.options import DEFAULT_CLUSTER, AsJson, ToCluster, Topic, option
from tidelog.cli.tables import format_timestamp, print_table

if TYPE_CHECKING:
    from tidelog.client import Admin, ProducerDescription, TopicPartition
    from tidelog.wire.cluster_config import ClusterConfig

_MOST_PRODUCERS = 10_000
_ROWS_AT_ONCE = 500
_COLUMNS = (
    "PARTITION",
    "PRODUCER ID",
    "EPOCH",
    "LAST SEQUENCE",
    "LAST TIMESTAMP",
    "BATCHES (SEQUENCES@OFFSET)",
)
_Batches: TypeAlias = dict[tuple[int, int, int], list[dict[str, int]]]
"""(partition, producer id, epoch) -> batches as the HTTP port gives them."""


def producers(
    topic: Topic,
    partitions: Annotated[
        list[int] | None, option("--partition", min=0, help="Show only this partition. May be repeated.")
    ] = None,
    as_json: AsJson = False,
    http: HttpAddress = None,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Show the idempotent producers of a topic.

    The list has the id, epoch, last sequence, last timestamp and cached batches of each producer. A batch is
    shown as its sequences and the offset of its first record: 3-7@12.
    """

    async def look(admin: Admin) -> tuple[dict[TopicPartition, list[ProducerDescription]], str | None, str]:
        found = await admin.describe_producers(topic, partitions)
        address = http or await find(admin)
        return found, address, (await admin.describe_cluster()).cluster_id

    found, address, cluster_id = run_with_admin(look, cluster)
    batches, problem = _batches(address, cluster, topic, cluster_id)
    if as_json:
        _print_json(found, batches)
    else:
        _print_table(found, batches)
    if problem:
        sys.stdout.flush()
        print(f"the batches cannot be shown: {problem}", file=sys.stderr)


def _batches(
    address: str | None, cluster: ClusterConfig, topic: str, cluster_id: str
) -> tuple[_Batches, str]:
    """The batches from the HTTP port, or none and the reason."""
    if address is None:
        return {}, "the broker does not name its HTTP port. Name it with --http"
    batches: _Batches = {}
    offset = 0
    while True:
        query = urlencode({"topic": topic, "offset": offset, "limit": _ROWS_AT_ONCE})
        try:
            status, answer = ask(address, cluster, "GET", f"/api/v1/producers?{query}")
        except NoAnswerError as error:
            return {}, f"{error}; name the broker's HTTP port with --http, or set console.enable=true there"
        if status != 200:
            return batches, f"{url(address)} says: {answer.get('message', status)}"
        if answer.get("cluster_id") != cluster_id:
            return {}, f"{url(address)} is a broker of another cluster; name this one's with --http"
        rows = answer["rows"]
        batches |= {
            (row["partition"], row["producer_id"], row["producer_epoch"]): row["batches"]
            for row in rows
            if row["is_known"]
        }
        offset += len(rows)
        if not rows or offset >= min(answer["total"], _MOST_PRODUCERS):
            return batches, ""


def _print_table(found: dict[TopicPartition, list[ProducerDescription]], batches: _Batches) -> None:
    rows = [
        (
            where.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            format_timestamp(producer.last_timestamp),
            _as_text(batches.get((where.partition, producer.producer_id, producer.producer_epoch))),
        )
        for where, producers_there in found.items()
        for producer in sorted(producers_there)
    ]
    print_table(_COLUMNS, rows)


def _as_text(batches: list[dict[str, int]] | None) -> str:
    if batches is None:
        return "-"
    return " ".join(
        f"{batch['base_sequence']}-{batch['last_sequence']}"
        f"@{batch['base_offset'] if batch['base_offset'] >= 0 else '-'}"
        for batch in batches
    )


def _print_json(found: dict[TopicPartition, list[ProducerDescription]], batches: _Batches) -> None:
    for where, producers_there in found.items():
        for producer in sorted(producers_there):
            line: dict[str, Any] = {"topic": where.topic, "partition": where.partition}
            line |= producer._asdict()
            line["batches"] = batches.get((where.partition, producer.producer_id, producer.producer_epoch))
            print(json.dumps(line))
