"""The pipeline on Spark: reads beside Spark's own Kafka connector and aiokafka, sinks and jobs beside plain
ones.

One broker and one Spark session for all rounds. Within a round all Spark cases take turns, and aiokafka reads
afterwards. Spark has two cores and aiokafka is one process: each may use what it has.
"""

import os

from bench.comparison import Run
from bench.loads.process import run_load, run_program
from bench.loads.spark_load import CONNECTOR, MOST_PARTITIONS, OF_A_STREAM
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.targets.maven import FetchError
from bench.targets.spark import resolve_connector
from bench.targets.tidelog import Tidelog
from bench.wire import Wire

AIOKAFKA = "aiokafka"
_RECORDS = 500_000
_TOPIC, _PARTITIONS = "copied", 2
_READS = {
    "read, 100 partitions": {"partitions": 100, "records_per_batch": 1000, "requests": 4},
    MOST_PARTITIONS: {"partitions": 1000, "records_per_batch": 200, "requests": 1},
    "read, 1,000-byte records": {
        "partitions": _PARTITIONS,
        "records_per_batch": 1000,
        "requests": 75,
        "value_bytes": 1000,
    },
}
"""Other topics, as `raw_load` fills them."""
_COPYING = (Requirement(0.8, REFERENCE),)
_REQUIRED = {
    "read, batch": (Requirement(3, AIOKAFKA),),
    "read, stream": (Requirement(3, AIOKAFKA),),
    "sink, mirror / at_least_once": _COPYING,
    "sink, exactly_once / at_least_once": _COPYING,
}


class _Broker(Tidelog):
    settings = ("transaction.two.phase.commit.enable=true",)


def measure(run: Run) -> Results:
    """All rounds on one broker. Raises FAILURES."""
    results = Results((CONNECTOR, AIOKAFKA, REFERENCE), "The pipeline on Spark, on one Tidelog broker")
    try:
        connector = resolve_connector(os.environ)
    except FetchError as error:
        connector = {}
        results.note(f"Spark's own Kafka connector is absent: {error}")
    with _Broker(run.folder / SUBJECT) as broker:
        for topic, partitions in ((_TOPIC, _PARTITIONS), (AIOKAFKA, 1)):
            requests = _RECORDS // partitions // 1000
            _fill(broker, topic, partitions=partitions, records_per_batch=1000, requests=requests)
        reads = [
            (name, f"read-{number}", _fill(broker, f"read-{number}", **fill))
            for number, (name, fill) in enumerate(_READS.items())
        ]
        measured = run_program(
            "spark_load",
            port=broker.port,
            folder=str(run.folder),
            topic=_TOPIC,
            records=_RECORDS,
            reads=reads,
            rounds=run.rounds,
            settings=connector,
        )["measured"]
        for _ in range(run.rounds):
            asked = {"work": "consume", "client": AIOKAFKA, "topic": AIOKAFKA, "records": _RECORDS}
            numbers = run_load(broker, "client_load", **asked).numbers
            for name in ("read, batch", "read, stream"):  # To a client both are one.
                measured[name].setdefault(AIOKAFKA, []).append(numbers["records"] / numbers["seconds"])
    for name, values in measured.items():
        kind = ("time", OF_A_STREAM[name]) if name in OF_A_STREAM else ("rate", "records/s")
        row = results.row(name, *kind, _REQUIRED.get(name, ()))
        for who, rates in values.items():
            for rate in rates:
                row.add(who, rate)
    return results


def _fill(broker: Tidelog, topic: str, **fill: int) -> int:
    """Create and fill the topic. The number of its records."""
    with Wire(broker.port) as wire:
        wire.create_topic(topic, fill["partitions"])
    run_load(broker, "raw_load", topic=topic, **fill)
    return fill["partitions"] * fill["records_per_batch"] * fill["requests"]
