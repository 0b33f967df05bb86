"""The mirror: topics to topics, on one cluster or between two, every record once, whatever is killed.

Owns what a mirror reads and writes: partitions, timestamps and headers are kept, each record gets one more
header that names its source (`tidelog.source`: TOPIC-PARTITION@OFFSET). `where` and `select` are SQL over the
columns key, value, headers, timestamp, topic, partition and offset; a `select` must give key or value, and
what it does not give of headers and timestamp is kept. Exactness is `pipeline.mirror_writer`'s: the
checkpoint folder holds the mirror's session, and who starts again with it goes on without loss or duplicate.

Invariants: each source partition is read by one task, in its order, so that filtering is the only cause of
gaps; what chance decides (rand() in `where`) is refused, and so are compacted topics, for both would give
another sequence of rows when read again. Called by `cli.pipeline` and the demo.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from client.admin import Admin
from client.admin_types import ConfigResource, ConfigResourceType, NewTopic
from pipeline.fetch import find_bounds
from pipeline.jobs.job import JobProgress
from pipeline.jobs.projection import KEPT, PLACED, project
from pipeline.mirror_session import MirrorCounts, MirrorSession
from pipeline.offsets import OptionError
from pipeline.sink_options import SESSION_FOLDER, folder_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """What to mirror: `topics`, or all that fit `topic_pattern`, to `to_bootstrap_servers` (None: to the same
    cluster, under other names).

    `rename` holds FROM=TO pairs; all other names get `prefix` before them. Missing topics are created with
    as many partitions as their source. `checkpoint` is this mirror's own folder. Without `trigger_seconds`
    the mirror ends when it has what was there at its start; with it, it goes on, a batch every so often.
    """

    checkpoint: str
    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    to_bootstrap_servers: str | None = None
    rename: tuple[str, ...] = ()
    prefix: str = ""
    select: str | None = None
    where: str | None = None
    max_offsets_per_trigger: int | None = None
    trigger_seconds: float | None = None
    compression_type: str = "none"

    @property
    def names(self) -> dict[str, str]:
        """New names by old ones. Raises OptionError for a pair that is none."""
        pairs = [pair.partition("=") for pair in self.rename]
        if wrong := ["".join(pair) for pair in pairs if not all(pair)]:
            raise OptionError(f"rename: {wrong[0]!r} is not like FROM=TO")
        return {old.strip(): new.strip() for old, _, new in pairs}

    @property
    def session_path(self) -> Path:
        """Where the mirror keeps its session. Raises OptionError for a folder that is no path."""
        return Path(folder_path("checkpoint", self.checkpoint)).absolute() / SESSION_FOLDER

    def target(self, topic: str) -> str:
        """What the topic's copy is called."""
        return self.names.get(topic, self.prefix + topic)

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        if bool(self.topics) == bool(self.topic_pattern):
            raise OptionError("a mirror needs either topics or a topic_pattern")
        if not self.checkpoint:
            raise OptionError("a mirror needs a checkpoint: a folder in which it notes how far it is")
        _ = self.session_path
        if self.trigger_seconds is not None and self.trigger_seconds <= 0:
            raise OptionError(f"trigger_seconds: {self.trigger_seconds} is not above 0")
        if self.max_offsets_per_trigger is not None and self.max_offsets_per_trigger < 1:
            raise OptionError(f"max_offsets_per_trigger: {self.max_offsets_per_trigger} is less than 1")
        if unknown := sorted(self.names.keys() - set(self.topics)) if self.topics else []:
            raise OptionError(f"rename: {unknown[0]!r} is not among the topics")
        targets = [self.target(topic) for topic in self.topics]
        if len(set(targets)) < len(targets):
            raise OptionError("two topics would have the same copy: give each a name of its own")


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a run did. `skipped` rows were stored by an earlier run."""

    topics: int
    counts: MirrorCounts
    seconds: float

    @property
    def exit_code(self) -> int:
        """0: a mirror that cannot go on raises."""
        return 0

    def summary(self) -> dict[str, object]:
        """Flat, for programs."""
        return {
            "event": "mirror_finished",
            "topics": self.topics,
            "rows_read": self.counts.read,
            "rows_written": self.counts.written,
            "rows_skipped": self.counts.skipped,
            "batches": self.counts.batches,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.counts.read / self.seconds) if self.seconds else 0,
        }


def build(spark: "SparkSession", settings: MirrorSettings) -> "DataFrame":
    """The rows for the sink, as a stream. Raises OptionError."""
    from pyspark.sql import functions as f

    settings.check()
    source = {
        "bootstrap.servers": settings.bootstrap_servers,
        "startingOffsets": "earliest",
        "columns": ",".join((*KEPT, *PLACED)),
    }
    source |= {"subscribe": ",".join(settings.topics)} if settings.topics else {}
    source |= {"subscribePattern": settings.topic_pattern} if settings.topic_pattern else {}
    if settings.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    read = spark.readStream.format("tidelog").options(**source).load()
    rows = project(spark, read, settings.where, settings.select)
    topic = f.concat(f.lit(settings.prefix), f.col("source_topic"))
    for old, new in settings.names.items():
        topic = f.when(f.col("source_topic") == old, f.lit(new)).otherwise(topic)
    return rows.withColumn("topic", topic)


def run(
    spark: "SparkSession",
    settings: MirrorSettings,
    on_progress: Callable[[JobProgress], None] | None = None,
    stop: Event | None = None,
) -> MirrorReport:
    """Mirror what is there, or, with `trigger_seconds`, until `stop` is set.

    Raises OptionError, ClientError, or Spark's error for what a task met.
    """
    rows = build(spark, settings)
    topics = asyncio.run(_prepare_topics(settings))
    began = time.monotonic()
    options = {
        "bootstrap.servers": settings.to_bootstrap_servers or settings.bootstrap_servers,
        "delivery": "mirror",
        "checkpointLocation": settings.checkpoint,
        "session.path": str(settings.session_path),
        "mirror.plan": _plan(settings),
        "mirror.gaps": "allow",
        "compression.type": settings.compression_type,
    }
    writer = rows.writeStream.format("tidelog").options(**options)
    if settings.trigger_seconds is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(settings.trigger_seconds * 1000)} milliseconds")
    query = writer.start()
    session = MirrorSession(str(settings.session_path), "")
    tell = on_progress or (lambda _: None)
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            counts = session.counts(str(query.runId))
            tell(JobProgress(counts.read, None, counts.batches, f"mirroring {len(topics)} topics"))
            if stop is not None and stop.is_set():
                break
    finally:
        # A batch that this breaks off is taken up again by the next run.
        query.stop()
    counts = session.counts(str(query.runId))
    tell(JobProgress(counts.read, counts.read, counts.batches, "done"))
    return MirrorReport(len(topics), counts, time.monotonic() - began)


def _plan(settings: MirrorSettings) -> str:
    """What decides which rows go where."""
    decisive: Mapping[str, Any] = {
        "where": settings.where,
        "select": settings.select,
        "rename": sorted(settings.names.items()),
        "prefix": settings.prefix,
    }
    return json.dumps(decisive)


async def _prepare_topics(settings: MirrorSettings) -> dict[str, int]:
    """The source's topics with their numbers of partitions; their copies exist afterwards.

    Raises OptionError where they could not be mirrored.
    """
    target_servers = settings.to_bootstrap_servers or settings.bootstrap_servers
    async with (
        Admin(bootstrap_servers=settings.bootstrap_servers) as source,
        Admin(bootstrap_servers=target_servers) as target,
    ):
        topics = await _source_topics(source, settings)
        is_same = (await source.describe_cluster()).cluster_id == (await target.describe_cluster()).cluster_id
        if is_same and (own := [name for name in topics if settings.target(name) == name]):
            raise OptionError(
                f"topic {own[0]!r} would be mirrored onto itself: give a rename or a prefix, or another"
                " cluster in to_bootstrap_servers"
            )
        existing = set(await target.list_topics())
        wanted = {settings.target(name): count for name, count in topics.items()}
        missing = [NewTopic(name, count) for name, count in wanted.items() if name not in existing]
        if missing:
            await target.create_topics(missing)
        for described in await target.describe_topics([name for name in wanted if name in existing]):
            if len(described.partitions) < wanted[described.name]:
                raise OptionError(
                    f"topic {described.name!r} has {len(described.partitions)} partitions, its source has"
                    f" {wanted[described.name]}: mirror to another name, or give it as many"
                )
        return topics


async def _source_topics(source: Admin, settings: MirrorSettings) -> dict[str, int]:
    names = settings.topics
    if settings.topic_pattern is not None:
        found = await asyncio.to_thread(
            find_bounds, settings.bootstrap_servers, None, None, settings.topic_pattern
        )
        names = tuple(sorted({place.topic for place in found}))
    topics = {each.name: len(each.partitions) for each in await source.describe_topics(names)}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    for resource, entries in (await source.describe_configs(resources)).items():
        if any(each.name == "cleanup.policy" and "compact" in (each.value or "") for each in entries):
            raise OptionError(
                f"topic {resource.name!r} is compacted: records would go while they are mirrored, and what is"
                " read again would not be the same. Copy it with delivery=at_least_once"
            )
    return topics
