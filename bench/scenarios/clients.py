"""Python clients side by side on one Tidelog broker: sending (also far away), latency, consuming, memory.

All use the same broker, and wait for its disk (acks=all), so what differs is the client. Each run is a
process of its own, and clients take turns within a round. The records that a producer reports as stored are
counted in the topic afterwards; if the number is wrong, the bench ends. Where the processor time of a record
is compared, Kafka's own producer in Java is measured too, without the start of its JVM.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.clients import consumers, producers
from bench.comparison import Run
from bench.loads.process import LoadError, run_load
from bench.results import SUBJECT, Requirement, Results
from bench.targets.process import Target
from bench.targets.slow_link import SlowLink
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire

JAVA = "Java"
PEERS = (*(name for name in producers.CLIENTS if name != SUBJECT), consumers.CONFLUENT, JAVA)
TITLE = "Tidelog's client beside others, on one Tidelog broker: medians of rounds, ratios within each round"
ROUND_TRIP_MS = 10
_SENDING = (Requirement(6, "aiokafka"), Requirement(6, "kafka-python"), Requirement(6, "AIOProducer"))
_SENDING_EFFORT = (Requirement(1, JAVA, at_least=False),)
# With batches of one size five requests in flight are at most five times as fast as aiokafka's one.
_FAR = {"own batch size": (Requirement(6, "aiokafka"),), "16 KB batches": (Requirement(4.5, "aiokafka"),)}
_LOWER = (Requirement(1, "aiokafka", at_least=False),)
# Of a rate: times aiokafka's. A way that both have, and columns beside its getmany.
_CONSUMING = {
    "getmany": (Requirement(2, "aiokafka"),),
    "columns": (Requirement(3, "aiokafka"),),
    "async for": (Requirement(3, "aiokafka"),),
}
_CONSUMING_EFFORT = (Requirement(1, consumers.CONFLUENT, at_least=False),)
_SMALL_BATCH = {"batch_bytes": producers.SMALL_BATCH_BYTES}
_BATCHES: dict[str, dict[str, int]] = {"own batch size": {}, "16 KB batches": _SMALL_BATCH}
_SIZES = (("100-byte records", 100), ("1 KB records", 1000))
_VARIED = {"keys": 1000, "varied": 1}
_MANY: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("8 partitions, keys and varied sizes", 8, _VARIED),
    ("100 partitions, keys and varied sizes", 100, _VARIED),
    ("100 partitions", 100, {}),
)
_JAVA_RECORDS = {100: 1_000_000, 1000: 300_000}
# So many that the slower client reads for half a second or more.
_CONSUMED_RECORDS = {100: 500_000, 1000: 150_000}
# Of 3,000 records the worst 30 are one or two stalls of the disk, so that one turn says little of the 99th
# percentile: more turns, and the median of their ratios.
_LATENCY_TURNS = 3
_LATENCY_SECONDS = 3.0


def measure(run: Run) -> Results:
    """Each round on brokers of its own. Raises FAILURES."""
    results = Results(PEERS, TITLE)
    for number in range(run.rounds):
        _round(results, run.folder / str(number), run.seconds / 2)
    return results


def _round(results: Results, folder: Path, seconds: float) -> None:
    with Tidelog(folder / "clients") as broker:
        for how, batch in _BATCHES.items():
            for title, value_bytes in _SIZES:
                name = f"send, {title}, {how}"
                clients = producers.CLIENTS if batch else (*producers.CLIENTS, JAVA)
                _send(results, broker, name, value_bytes, batch, seconds, clients, _SENDING)
        for how, partitions, options in _MANY:
            for title, value_bytes in _SIZES:
                name, peers = f"send, {title}, {how}", producers.CLIENTS
                _send(results, broker, name, value_bytes, options, seconds, peers, _SENDING, partitions)
        _latency(results, broker)
        for title, value_bytes in _SIZES:
            _consume(results, broker, title, value_bytes)
        _memory(results, broker)
    with _far_broker(folder) as broker:
        for how, batch in _BATCHES.items():
            for title, value_bytes in _SIZES:
                name = f"send, {title}, {how}, {ROUND_TRIP_MS} ms round trip"
                _send(results, broker, name, value_bytes, batch, seconds, consumers.CLIENTS, _FAR[how])


@contextmanager
def _far_broker(folder: Path) -> Iterator[Target]:
    """A broker that clients reach only through a link that holds each answer back."""
    link = SlowLink(folder / "link", ROUND_TRIP_MS)
    broker = Tidelog(folder / "far", advertised_port=link.port)
    with broker:
        link.upstream_port = broker.port
        with link:
            yield link


def _fresh_topic(target: Target, *words: object, partitions: int = 1) -> str:
    topic = "-".join([TOPIC, *(str(word).replace(" ", "-") for word in words)])
    with Wire(target.port) as wire:
        wire.create_topic(topic, partitions)
    return topic


def _send(
    results: Results,
    target: Target,
    name: str,
    value_bytes: int,
    more: Mapping[str, int],
    seconds: float,
    clients: Sequence[str],
    requirements: Sequence[Requirement],
    partitions: int = 1,
) -> None:
    rate = results.row(name, "rate", "records/s", requirements)
    needed = _SENDING_EFFORT if JAVA in clients else ()
    effort = results.row(name, "processor time of the client", "us/record", needed)
    for client in clients:
        topic = _fresh_topic(target, client, value_bytes, *more.values(), partitions, partitions=partitions)
        options = {"topic": topic, "value_bytes": value_bytes, "seconds": seconds, **more}
        try:
            if client == JAVA:
                numbers = _java_numbers(target, topic, value_bytes)
            else:
                numbers = run_load(target, "client_load", work="produce", client=client, **options).numbers
        except LoadError as error:
            if client != JAVA:
                raise
            results.note(f"{JAVA} is absent from {name}: {error}")
            continue
        with Wire(target.port) as wire:
            # One more was sent before the clock was started.
            stored = wire.end_offset(topic, partitions) - 1
        if stored != numbers["records"]:
            raise LoadError(f"{client} sent {numbers['records']:.0f} records and the topic holds {stored}")
        rate.add(client, numbers["records"] / numbers["seconds"])
        effort.add(client, numbers["cpu_seconds"] / numbers["records"] * 1e6)


def _java_numbers(target: Target, topic: str, value_bytes: int) -> dict[str, float]:
    """As those of the other clients. Raises LoadError."""
    options = {"topic": topic, "value_bytes": value_bytes}
    start = run_load(target, "java_producer", records=1, **options).numbers
    numbers = run_load(target, "java_producer", records=_JAVA_RECORDS[value_bytes], **options).numbers
    return numbers | {"cpu_seconds": numbers["cpu_seconds"] - start["cpu_seconds"]}


def _latency(results: Results, target: Target) -> None:
    for turn in range(_LATENCY_TURNS):
        for client in consumers.CLIENTS:
            topic = _fresh_topic(target, client, "latency", turn)
            options = {"client": client, "topic": topic, "seconds": _LATENCY_SECONDS}
            numbers = run_load(target, "latency_load", **options).numbers
            for share in ("p50", "p99"):
                row = results.row("send to receipt, 1,000 records/s", share, "ms", _LOWER)
                row.add(client, numbers[f"{share}_ms"])


def _consume(results: Results, target: Target, title: str, value_bytes: int) -> None:
    records = _CONSUMED_RECORDS[value_bytes]
    topic = _fresh_topic(target, "consumed", value_bytes)
    options = {"topic": topic, "value_bytes": value_bytes, "records": records}
    filling = {"work": "produce", "client": SUBJECT, "seconds": 30, **options, **_SMALL_BATCH}
    run_load(target, "client_load", **filling)
    for way, requirements in _CONSUMING.items():
        # confluent-kafka's fastest way, `consume`, beside ours; it has no async for.
        is_alone = way == "async for"
        rate = results.row(f"consume, {title}", way, "records/s", requirements)
        measure = f"{way}, processor time of the client"
        effort = results.row(f"consume, {title}", measure, "us/record", () if is_alone else _CONSUMING_EFFORT)
        for client in consumers.CLIENTS if is_alone else (*consumers.CLIENTS, consumers.CONFLUENT):
            asked = {"work": "consume", "client": client, "way": way, **options}
            numbers = run_load(target, "client_load", **asked).numbers
            rate.add(client, numbers["records"] / numbers["seconds"])
            effort.add(client, numbers["cpu_seconds"] / numbers["records"] * 1e6)


def _memory(results: Results, target: Target) -> None:
    row = results.row("memory of an unsent record of 100 bytes", "with its delivery", "bytes")
    for client in consumers.CLIENTS:
        outcome = run_load(target, "client_load", work="memory", client=client)
        row.add(client, outcome.numbers["bytes_a_record"])
