"""`tidelog bench produce|consume`: measures how fast a broker is, Tidelog or any other with Kafka's protocol.

Owns the two measurements and how they are printed, as text or as one JSON object. `produce` measures the time
from the call of `send` to the acknowledgement; of more than `_MOST_SAMPLES` records it measures a sample.
`consume` measures how long a read waits for records. Sizes are those of the values; 1 MB is 10^6 bytes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidelog.cli.failures import Failure, run
from tidelog.cli.options import DEFAULT_CLUSTER, Compression, Rate, ToCluster, Topic, compression_type
from tidelog.cli.pace import Pace, Progress
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    import asyncio

app = typer.Typer(help="Measure how fast a broker is.", no_args_is_help=True)

_MOST_SAMPLES = 100_000
_PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))

Records = Annotated[int, typer.Option("--records", "-n", min=1, help="Number of records.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, not sentences.")]


class Measured(NamedTuple):
    """What one run measured. Latencies are milliseconds, sorted."""

    records: int
    value_bytes: int
    seconds: float
    latencies_ms: list[float]

    def fields(self) -> dict[str, Any]:
        """What is printed, by its names in the JSON."""
        latency = {name: round(percentile(self.latencies_ms, share), 3) for name, share in _PERCENTILES}
        return {
            "records": self.records,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.records / self.seconds, 1),
            "megabytes_per_second": round(self.value_bytes / self.seconds / 1e6, 3),
            "latency_ms": {**latency, "max": round(self.latencies_ms[-1], 3)},
        }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


@app.command("produce")
def produce(
    topic: Topic,
    records: Records = 100_000,
    record_size: Annotated[
        int, typer.Option("--record-size", min=0, help="Size of each value in bytes.")
    ] = 100,
    rate: Rate = None,
    acks: Annotated[
        str,
        typer.Option(
            "--acks",
            help="Acknowledgements to wait for: all, 1 or 0. With 1 and 0 the producer is not idempotent.",
        ),
    ] = "all",
    compression: Compression = "none",
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", min=1, help="Size of a batch in bytes. Without it, the producer's default."
        ),
    ] = None,
    linger_ms: Annotated[
        int, typer.Option("--linger-ms", min=0, help="Time that a batch waits for more records.")
    ] = 0,
    as_json: Json = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Send records of random bytes. Measure the time until each is acknowledged."""
    if acks not in ("all", "1", "0"):
        raise typer.BadParameter(f"expected all, 1 or 0, got {acks}", param_hint="--acks")
    options = {
        "cluster": cluster,
        "acks": acks,
        "enable_idempotence": acks == "all",
        "compression_type": compression_type(compression),
        "linger_ms": linger_ms,
        **({} if batch_size is None else {"max_batch_size": batch_size}),
    }
    progress = Progress("sent", records)
    try:
        measured = run(_produce(topic, records, record_size, Pace(rate), progress, options), cluster)
    finally:
        progress.end()
    setting = {"topic": topic, "record_size": record_size, "acks": acks, "compression": compression}
    _print("produced", measured, {"work": "produce", **setting, "rate": rate}, as_json)


@app.command("consume")
def consume(
    topic: Topic,
    records: Records = 100_000,
    timeout_ms: Annotated[
        int, typer.Option("--timeout-ms", min=1, help="Stop when no record arrives in this time.")
    ] = 5_000,
    check_crcs: Annotated[bool, typer.Option(help="Verify the checksum of every batch.")] = True,
    as_json: Json = False,
    cluster: ToCluster = DEFAULT_CLUSTER,
) -> None:
    """Read records from the beginning of a topic. Measure how long each read waits."""
    progress = Progress("read", records)
    try:
        measured = run(_consume(topic, records, timeout_ms, check_crcs, progress, cluster), cluster)
    finally:
        progress.end()
    _print("consumed", measured, {"work": "consume", "topic": topic, "check_crcs": check_crcs}, as_json)


async def _produce(
    topic: str, records: int, size: int, pace: Pace, progress: Progress, options: dict[str, Any]
) -> Measured:
    import asyncio

    from tidelog.client import Producer

    value = os.urandom(size)
    every = -(-records // _MOST_SAMPLES)
    samples: asyncio.Queue[tuple[float, Any] | None] = asyncio.Queue()
    clock = time.perf_counter
    async with Producer(**options) as producer:
        await producer.partitions_for(topic)
        watcher = asyncio.create_task(_watch(samples))
        began = clock()
        for done in range(records):
            if delay := pace.delay(done, clock()):
                await asyncio.sleep(delay)
            at = clock()
            delivery = await producer.send(topic, value)
            if done % every == 0 or done == records - 1:
                samples.put_nowait((at, delivery))
                progress.show(done)
        await producer.flush()
        seconds = clock() - began
        samples.put_nowait(None)
        latencies_ms = await watcher
    return Measured(records, records * size, seconds, sorted(latencies_ms))


async def _watch(samples: asyncio.Queue[tuple[float, Any] | None]) -> list[float]:
    """Milliseconds from each sample's time to its acknowledgement. Raises what a delivery raises."""
    latencies_ms = []
    while (sample := await samples.get()) is not None:
        at, delivery = sample
        await delivery
        latencies_ms.append((time.perf_counter() - at) * 1000)
    return latencies_ms


async def _consume(
    topic: str, records: int, timeout_ms: int, check_crcs: bool, progress: Progress, cluster: ClusterConfig
) -> Measured:
    from tidelog.client import Consumer

    waits_ms: list[float] = []
    size = done = 0
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "check_crcs": check_crcs}
    async with Consumer(topic, cluster=cluster, **settings) as consumer:
        began = ended = time.perf_counter()
        while done < records:
            at = time.perf_counter()
            found = await consumer.getmany(timeout_ms=timeout_ms, max_records=records - done)
            if not found:
                break
            waits_ms.append((time.perf_counter() - at) * 1000)
            for some in found.values():
                done += len(some)
                size += sum(each.serialized_value_size for each in some if each.value is not None)
            ended = time.perf_counter()
            progress.show(done)
    if not done:
        raise Failure(
            f"no record of topic {topic!r} arrived in {timeout_ms} ms: fill it with `tidelog bench produce`"
        )
    return Measured(done, size, ended - began, sorted(waits_ms))


def _print(verb: str, measured: Measured, setting: dict[str, Any], as_json: bool) -> None:
    fields = measured.fields()
    if as_json:
        print(json.dumps({**setting, **fields}))
        return
    latency = ", ".join(f"{name} {value:,.2f} ms" for name, value in fields["latency_ms"].items())
    print(
        f"{verb} {measured.records:,} records in {measured.seconds:.2f} s:"
        f" {fields['records_per_second']:,.0f} records/s, {fields['megabytes_per_second']:,.1f} MB/s"
    )
    print(f"latency {latency}")
