"""The clients that are compared do the same work, and what the tables say of them is theirs."""

import io
from collections.abc import Iterator
from itertools import product

import pytest
from rich.console import Console

from bench import report
from bench.clients.consumers import CLIENTS as CONSUMERS
from bench.clients.consumers import CONFLUENT
from bench.clients.producers import CLIENTS as PRODUCERS
from bench.loads import client_load, latency_load
from bench.results import Requirement, Results
from bench.wire import Wire
from tidelog.broker.testing.embedded import ThreadedBroker

# kafka-python reads its schemas by a way that Python means to drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    with ThreadedBroker() as running:
        yield running


async def stored(broker: ThreadedBroker, records: int = 1000) -> str:
    """A topic to which our client has sent so many records and one."""
    topic = broker.create_topic()
    await client_load.run(broker.port, "produce", "tidelog", topic, 100, seconds=30, records=records)
    return topic


@pytest.mark.parametrize("client", PRODUCERS)
async def test_every_producer_stores_what_it_was_timed_for(broker: ThreadedBroker, client: str) -> None:
    topic = broker.create_topic()
    numbers = await client_load.run(
        broker.port, "produce", client, topic, 100, 16_384, keys=100, varied=True, seconds=30, records=1000
    )
    assert numbers["records"] == 1000
    assert numbers["seconds"] > 0
    with Wire(broker.port) as wire:
        assert wire.end_offset(topic) == 1001


@pytest.mark.parametrize(
    ("client", "way"),
    [*product(CONSUMERS, ["getmany", "columns", "async for"]), (CONFLUENT, "getmany")],
)
async def test_every_consumer_reads_what_there_is(broker: ThreadedBroker, client: str, way: str) -> None:
    topic = await stored(broker)
    numbers = await client_load.run(broker.port, "consume", client, topic, records=1000, way=way)
    # Without those of the first read, which is not timed.
    assert 500 <= numbers["records"] < 1000


@pytest.mark.parametrize("client", CONSUMERS)
async def test_latency_counts_every_record_after_the_warm_up(broker: ThreadedBroker, client: str) -> None:
    numbers = await latency_load.run(broker.port, client, broker.create_topic(), seconds=0.1, rate=2000.0)
    assert numbers["records"] == 200
    assert 0 < numbers["p50_ms"] <= numbers["p99_ms"]


def test_a_table_has_a_column_for_each_of_its_peers() -> None:
    results = Results(("aiokafka",), "clients")
    row = results.row("send", "rate", "records/s", (Requirement(3, "aiokafka"),))
    row.add("tidelog", 400)
    row.add("aiokafka", 100)
    shown = io.StringIO()
    report.show(results, Console(file=shown, width=320))
    assert "4.00" in shown.getvalue()
    assert "≥ 3 × aiokafka" in shown.getvalue()
    assert "busy" not in shown.getvalue()
    row.add("tidelog", 400, others=0.5)
    report.show(results, Console(file=shown, width=320))
    assert "The machine was too busy for reliable numbers: send" in shown.getvalue()
