"""One run: broker processes behind proxies, writers of two clients, faults from a seed, and the check.

Owns the order of a run: start, break, heal, wait for the writers, read back, check. Invariants: it checks
only after all faults are healed. A failed step (the broker does not start, a reader fails) is a finding too,
so a run always ends with a `Result`.
"""

import asyncio
import errno
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

from faults.checker import REFUSED, Finding, Kind, Ledger, Mark, check, check_sequences, compare, is_acked
from faults.cluster.replicas import differences_of
from faults.cluster.saboteur import saboteur_of
from faults.cluster.site import cluster_site
from faults.foreign_readers import compare_with_others
from faults.foreign_writers import AiokafkaWriter, ConfluentWriter, KafkaPythonWriter
from faults.histories import record_rules
from faults.histories.history import Anomaly
from faults.histories.looks import EndLooks
from faults.histories.record_rules import Look, Records, Send
from faults.histories.record_rules import Stored as StoredBy
from faults.histories.report import findings_of
from faults.latest_values import check_latest
from faults.process import BrokerProcess, BrokerProcessError, event_of
from faults.proxy import ProxyCounters
from faults.readback import FileReading, Follower, Logs, read_all, read_files
from faults.saboteur import Saboteur
from faults.schedule import MACHINES_WAIT_MS, MEAN_WAIT_MS, FaultKind, Step, schedule, weights
from faults.site import Site, site_of
from faults.trial import Say
from faults.workload import Job, TidelogWriter, Writer
from faults.workload_keyed import (
    BROKER_SETTINGS,
    COMPACTED_TOPIC,
    TOPIC_CONFIGS,
    TRIMMED_CONFIGS,
    TRIMMED_TOPIC,
    KeyedWriter,
    read_compacted,
    trim_while_cleaned,
)
from tidelog.client import Admin, ClientError, NewTopic

TOPIC: Final = "faults"
_SETTLE_SECONDS: Final = 180.0
_READ_SECONDS: Final = 120.0
_FOLLOW_SECONDS: Final = 120.0
TIDELOG: Final[dict[str, Any]] = {
    "request_timeout_ms": 1200,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "buffer_memory": 262_144,
}
CONFLUENT: Final[dict[str, Any]] = {
    "request.timeout.ms": 1200,
    "socket.timeout.ms": 1500,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "queue.buffering.max.messages": 2000,
    "linger.ms": 2,
    "max.in.flight": 5,
    # A message that times out lets it store others twice: see `_writers`.
    "message.timeout.ms": 0,
}
_PYTHONIC: Final = {"request_timeout_ms": 3000, "retry_backoff_ms": 50, "metadata_max_age_ms": 1000}
_AIOKAFKA: Final[dict[str, Any]] = {**_PYTHONIC, "max_batch_size": 4096}
_KAFKA_PYTHON: Final[dict[str, Any]] = {
    **_PYTHONIC,
    "batch_size": 4096,
    "reconnect_backoff_max_ms": 200,
    "delivery_timeout_ms": 1_000_000,
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Two runs with the same settings have the same steps in the same order."""

    seed: int
    seconds: float
    """How long faults happen; longer if `least_steps` are not done yet."""
    least_steps: int = 0
    partitions: int = 4
    segment_bytes: int = 262_144
    timestamp_type: str = "CreateTime"
    sync_delay_ms: int = 0
    thread_share: float = 0.1
    """The share of the kernel's syncs that threads do instead."""
    checkpoint_interval_ms: int = 60_000
    acks_all_durable: bool = True
    """With false no power is cut: it may take what was acknowledged."""
    machines: bool = False
    """Whether there are three brokers, each with a network and a disk of its own, and three replicas."""

    @classmethod
    def drawn(cls, seed: int, seconds: float, *, machines: bool = False) -> Self:
        """Settings of the topic, drawn from the seed, so that seeds differ in more than the faults."""
        rng = random.Random(f"topic {seed}")
        return cls(
            seed,
            seconds,
            partitions=max(3 if machines else 1, rng.choice((1, 2, 4, 6))),
            segment_bytes=rng.choice((16_384, 65_536, 262_144, 1_048_576)),
            timestamp_type=rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            sync_delay_ms=rng.choice((0, 5, 20, 50)),
            checkpoint_interval_ms=rng.choice((100, 500, 60_000)),
            thread_share=rng.choice((0.0, 0.0, 0.1, 1.0)),
            acks_all_durable=rng.choice((True, True, machines)),
            machines=machines,
        )


@dataclass
class Result:
    """What a run did and found."""

    settings: Settings
    steps: Counter[FaultKind] = field(default_factory=Counter)
    network: ProxyCounters = field(default_factory=ProxyCounters)
    ledgers: list[Ledger] = field(default_factory=list)
    oddities: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    broker_starts: int = 0
    bytes_lost: int = 0
    records_stored: int = 0
    records_followed: int = 0
    looks: list[Look] = field(default_factory=list)
    polls: dict[str, Logs] = field(default_factory=dict)
    """What each consumer that was not moved found."""
    anomalies: list[Anomaly] = field(default_factory=list)
    keyed_ledgers: list[Ledger] = field(default_factory=list)
    """Those of the compacted topic."""
    trimmed_ledgers: list[Ledger] = field(default_factory=list)
    """Those of the compacted topic whose segments are deleted while it is cleaned."""
    trimmed: Counter[int] = field(default_factory=Counter)
    """How often records of each of its partitions were deleted within a clean."""
    cleans: int = 0
    ended_in_cleans: int = 0
    batches: int = 0
    segments: int = 0


async def run(settings: Settings, data_dir: Path, say: Say) -> Result:
    """Cause faults for `settings.seconds`, then check. `say` is called with a description of each step."""
    result = Result(settings)
    async with _site(settings, data_dir, result) as (site, writers):
        follower = Follower(site.direct_address, TOPIC, settings.partitions, client_rack=site.reading_rack)
        follower.start()
        looks = EndLooks(site.address, TOPIC, settings.partitions, result.ledgers)
        await asyncio.gather(*(writer.start() for writer in writers))
        try:
            await _break(site, settings, result, say)
            say("all faults are over; the writers finish")
            await _settle(writers, result, say)
            await looks.stop()
            say("reading everything back")
            logs = await _read_back(site, follower, result)
        except BrokerProcessError as error:
            result.findings.append(Finding(Kind.ALARM, str(error)))
            await looks.stop()
            await asyncio.gather(*(writer.give_up() for writer in writers), return_exceptions=True)
            await follower.stop()
        else:
            result.looks = looks.looks
            result.polls["the reader along"] = follower.logs
            judge_files(lambda partition: site.node_of(TOPIC, partition).data_dir, result, logs)
            folders = [node.data_dir for node in site.nodes]
            result.findings += (
                differences_of(folders, TOPIC, settings.partitions) if site.replicas > 1 else ()
            )
        for broker in site.brokers:
            result.findings += alarms(broker, disks_fail=settings.machines)
            result.broker_starts += broker.starts
            result.cleans += len(broker.events("log_cleaned"))
        counted = zip(*(astuple(node.proxy.counters) for node in site.nodes), strict=True)
        result.network = ProxyCounters(*map(sum, counted))
        result.records_followed = sum(map(len, follower.logs.values()))
        result.oddities |= {f"reading along: {name}": count for name, count in follower.errors.items()}
    return result


@asynccontextmanager
async def _site(
    settings: Settings, data_dir: Path, result: Result
) -> AsyncIterator[tuple[Site, list[Writer]]]:
    broker_settings = {
        "log.segment.bytes": settings.segment_bytes,
        "log.message.timestamp.type": settings.timestamp_type,
        "log.flush.offset.checkpoint.interval.ms": settings.checkpoint_interval_ms,
        "acks.all.durable": str(settings.acks_all_durable).lower(),
        **BROKER_SETTINGS,
    }
    disk = settings.sync_delay_ms, settings.thread_share
    opened = cluster_site(data_dir, broker_settings, *disk) if settings.machines else None
    async with opened or site_of(data_dir, broker_settings, *disk) as site:
        async with Admin(bootstrap_servers=site.address) as admin:
            configs = {TOPIC: None, COMPACTED_TOPIC: TOPIC_CONFIGS, TRIMMED_TOPIC: TRIMMED_CONFIGS}
            await admin.create_topics(
                [
                    NewTopic(name, settings.partitions, site.replicas, topic_configs=each)
                    for name, each in configs.items()
                ]
            )
        shared = settings.partitions, settings.seed
        job = Job(site.address, TOPIC, *shared, result.ledgers, result.oddities)
        if settings.machines:  # It is the faults that are wanted, not the load.
            job.longest_pause_s *= 10
        keyed_job = replace(job, topic=COMPACTED_TOPIC, ledgers=result.keyed_ledgers)
        trimmed_job = replace(job, topic=TRIMMED_TOPIC, ledgers=result.trimmed_ledgers)
        writers = [
            *_writers(job),
            *(
                _direct_writers(replace(job, bootstrap_servers=site.direct_address))
                if settings.machines
                else ()
            ),
            KeyedWriter("tidelog, keyed", keyed_job, TIDELOG | {"max_batch_size": 2048}),
            KeyedWriter("tidelog, trimmed", trimmed_job, TIDELOG | {"max_batch_size": 2048}),
        ]
        site.users = writers
        yield site, writers


def _writers(job: Job) -> list[Writer]:
    """Two of each client. One of ours has a short delivery timeout and must report correct outcomes.

    librdkafka with a short timeout stores records twice, with any broker: when one message times out, it
    bumps its epoch and sends the batches in flight again from sequence 0, though they may be stored
    (confluentinc/librdkafka#4953).
    """
    return [
        TidelogWriter("tidelog", job, TIDELOG | {"max_batch_size": 2048}),
        TidelogWriter(
            "tidelog, impatient",
            job,
            TIDELOG | {"delivery_timeout_ms": 1500, "compression_type": "lz4", "linger_ms": 5},
        ),
        ConfluentWriter("confluent", job, CONFLUENT | {"batch.size": 2048}),
        ConfluentWriter(
            "confluent, zstd", job, CONFLUENT | {"compression.type": "zstd", "batch.num.messages": 10}
        ),
    ]


def _direct_writers(job: Job) -> list[Writer]:
    """Those that reach the brokers without a proxy."""
    return [
        TidelogWriter("tidelog, direct", job, TIDELOG | {"linger_ms": 2}),
        ConfluentWriter("confluent, direct", job, CONFLUENT | {"batch.size": 4096}),
        AiokafkaWriter("aiokafka, direct", job, _AIOKAFKA),
        KafkaPythonWriter("kafka-python, direct", job, _KAFKA_PYTHON),
    ]


async def _break(site: Site, settings: Settings, result: Result, say: Say) -> None:
    saboteur = saboteur_of(site)
    often = weights("machines") if settings.machines else weights("shared", "writers")
    if not settings.acks_all_durable:
        del often[FaultKind.POWER_CUT]
    steps = schedule(settings.seed, often, MACHINES_WAIT_MS if settings.machines else MEAN_WAIT_MS)
    trimming = [
        asyncio.create_task(trim_while_cleaned(broker, TRIMMED_TOPIC, result.trimmed))
        for broker in site.brokers
    ]
    try:
        await break_for(saboteur, steps, settings.seconds, say, least_steps=settings.least_steps)
    finally:
        for each in trimming:
            each.cancel()
        await asyncio.wait(trimming)
        result.steps, result.bytes_lost = saboteur.done, saboteur.bytes_lost
        result.ended_in_cleans = saboteur.ended_in_cleans


async def break_for(
    saboteur: Saboteur, steps: Iterable[Step], seconds: float, say: Say, *, least_steps: int = 0
) -> None:
    """Carry out `steps` for `seconds`, or longer until `least_steps` are done, and heal everything."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        for step in steps:
            is_over = loop.time() + step.wait_ms / 1000 >= end
            if is_over and saboteur.done.total() >= least_steps:
                break
            say(f"in {step.wait_ms} ms: {step}")
            await saboteur.carry_out(step)
    finally:
        await saboteur.heal()


async def _settle(writers: Sequence[Writer], result: Result, say: Say) -> None:
    async def settle(writer: Writer) -> None:
        try:
            await writer.settle(_SETTLE_SECONDS)
            say(f"{writer.name} has settled")
        except TimeoutError:
            text = f"{writer.name} was not settled {_SETTLE_SECONDS:.0f} s after everything was healed"
            result.findings.append(Finding(Kind.HANGING, text))

    await asyncio.gather(*map(settle, writers))


async def _read_back(site: Site, follower: Follower, result: Result) -> Logs | None:
    address = site.address
    logs: Logs | None = None
    try:
        logs = await read_all(address, TOPIC, result.settings.partitions, _READ_SECONDS)
        await _check_compacted(address, result)
        async with asyncio.timeout(_FOLLOW_SECONDS):
            await follower.stop(logs)
    except (ClientError, TimeoutError) as error:
        what = "the logs" if logs is None else "what was read along"
        result.findings.append(Finding(Kind.UNREADABLE, f"{what}: {type(error).__name__} {error}"))
        await follower.stop()
    if logs is not None:
        result.findings += await compare_with_others(
            address, TOPIC, logs, _READ_SECONDS, found_by=result.polls
        )
    try:
        await site.settle()
    except TimeoutError:
        result.findings.append(
            Finding(Kind.HANGING, "not all replicas are in sync long after the last fault")
        )
    if exit_code := await site.terminate():
        result.findings.append(Finding(Kind.ALARM, f"exit code {exit_code} after SIGTERM"))
    for partition, seen in follower.logs.items():
        if logs is not None:
            found = compare(partition, "the reader along", seen, logs[partition])
            result.findings += found
    return logs


async def _check_compacted(address: str, result: Result) -> None:
    """Raises ClientError, TimeoutError."""
    left = await read_compacted(address, result.settings.partitions, _READ_SECONDS)
    result.findings += check_latest(result.keyed_ledgers, left)
    left = await read_compacted(address, result.settings.partitions, _READ_SECONDS, TRIMMED_TOPIC)
    findings = check_latest(result.trimmed_ledgers, left)
    # Retention may have deleted any record.
    result.findings += [each for each in findings if each.kind is not Kind.MISSING]


def judge_files(data_dir_of: Callable[[int], Path], result: Result, logs: Logs | None = None) -> None:
    """Check the segment files of stopped brokers, and `logs` (or else the files) against the ledgers.

    `data_dir_of` names the data folder of a partition. Blocking; adds to the findings of `result`.
    """
    partitions = range(result.settings.partitions)
    files = {partition: read_files(data_dir_of(partition), TOPIC, partition) for partition in partitions}
    for partition, reading in files.items():
        result.findings += reading.findings
        result.findings += check_sequences(partition, reading.batches)
        result.segments += reading.segments
        result.batches += len(reading.batches)
        if logs is not None:
            found = compare(partition, "the segment files", reading.records, logs[partition])
            result.findings += found
    if logs is None:
        logs = {partition: reading.records for partition, reading in files.items()}
    result.records_stored = sum(map(len, logs.values()))
    result.findings += check(result.ledgers, logs)
    result.polls["our client"] = logs
    result.anomalies = record_rules.check(_records_of(result, files))
    result.findings += findings_of(
        each for each in result.anomalies if each.name != record_rules.DUPLICATE_OF_CLIENT
    )


def _records_of(result: Result, files: Mapping[int, FileReading]) -> Records:
    sends = [
        Send(
            f"writer {ledger.writer} ({ledger.name})",
            partition,
            Mark(ledger.writer, partition, counter),
            fate if fate >= 0 else None,
            is_acked(fate),
            fate == REFUSED,
        )
        for ledger in result.ledgers
        for partition, fates in ledger.fates.items()
        for counter, fate in enumerate(fates)
    ]
    stored: dict[int, list[StoredBy]] = {}
    for partition, reading in files.items():
        records = iter(reading.records)
        stored[partition] = [
            StoredBy(*each, batch.producer_id, batch.producer_epoch, batch.base_sequence + index)
            for batch in reading.batches
            for index, each in enumerate(islice(records, batch.record_count))
        ]
    return Records(sends, result.polls, stored, result.looks)


def alarms(broker: BrokerProcess, *, disks_fail: bool = False) -> list[Finding]:
    """Log lines that crashes must not cause: errors, damage, tracebacks. A start may lack the store. After a
    crash between the deletion of files and the saving of the new start, duplicates of what was deleted are
    refused. With `disks_fail` what names an error of a disk is no finding."""
    deleted = {_partition_of(event) for event in broker.events("log_start_moved")}
    events = [(line, event_of(line)) for line in broker.log_lines]
    return [
        Finding(Kind.ALARM, line)
        for line, event in events
        if event is None
        or (
            event.get("level") in ("error", "critical")
            and not _lacked_store(event)
            and not (event.get("event") == "duplicate_refused" and _partition_of(event) in deleted)
            and not (disks_fail and _is_of_disk(event))
        )
    ]


_OF_DISKS: Final = tuple(
    f"[Errno {number}]" for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.ENOMEM)
)
"""The last is what ext4 says when it cannot read the blocks of a folder."""


def _is_of_disk(event: Mapping[str, Any]) -> bool:
    """A repaired disk may lack what was never synced: the end of a log, or the file with a topic's id beside
    records of a replica that had synced nothing yet."""
    if event.get("event") == "log_damage_found":
        return not event.get("below_recovery_point")
    if event.get("event") == "partition_metadata_missing":
        return True
    return any(each in str(event.get("error")) for each in _OF_DISKS)


def _partition_of(event: Mapping[str, Any]) -> tuple[str, int]:
    return event["topic"], event["partition"]


def _lacked_store(event: Mapping[str, Any]) -> bool:
    return event.get("event") == "broker_not_started" and "etcd gave no answer" in str(event.get("error"))
