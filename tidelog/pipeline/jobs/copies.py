"""Checks the topics that a job reads and their copies, and creates missing copies.

Owns the checks before a record is copied, and how a copy is made: with as many partitions as needed, with the
producers' timestamps, and with the retention of its source. A copy that the session has written to grows with
its source. If it was deleted or created again, that is an error, because the session takes its records for
stored.

Invariants: if anything is refused, nothing is made.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tidelog.client import Admin, ConfigResource, ConfigResourceType, NewTopic, TopicDescription
from tidelog.pipeline.mirror.session_folder import MirrorError, MirrorSession
from tidelog.pipeline.offsets import NO_TOPIC_ID, OptionError
from tidelog.pipeline.paths import try_lock
from tidelog.wire.cluster_config import ClusterConfig

# A record that a mirror stores has one more header, which names its source.
_HEADER_BYTES = 1024
_OF_DEFAULT = 5
_KEPT_SETTINGS = ("retention.ms", "retention.bytes")
_LARGEST_BATCH = "max.message.bytes"
_TIMESTAMPS = "message.timestamp.type"


class Origin(NamedTuple):
    """The origin of records: the cluster's id, "" for none, and the ids of topics that have one."""

    cluster_id: str
    topics: dict[str, str]


class Copy(NamedTuple):
    """A topic to write to: the partitions that it needs, and the settings to create it with."""

    partitions: int
    settings: Mapping[str, str]


@contextmanager
def only_run(session: MirrorSession) -> Iterator[None]:
    """Hold the session for this run; the kernel releases it when the process ends.

    Two runs at the same time would store nothing twice, but disturb each other's files. Raises MirrorError if
    another run on this machine holds it, OptionError if the folder cannot be written.
    """
    try:
        lock = try_lock(session.folder)
    except OSError as error:
        raise OptionError(f"no session can be kept in {session.path}: {error}") from None
    if lock is None:
        raise MirrorError(
            f"another run is at work with the session in {session.path}: wait for its end, or stop it"
        )
    try:
        yield
    finally:
        os.close(lock)


async def origin_of(cluster: ClusterConfig, topics: Iterable[str]) -> Origin:
    """Raises ClientError."""
    async with Admin(cluster=cluster) as admin:
        cluster_id = (await admin.describe_cluster()).cluster_id
        found = await admin.describe_topics(topics)
    ids = {each.name: str(each.topic_id) for each in found if each.topic_id != NO_TOPIC_ID}
    return Origin(cluster_id, ids)


async def make_copies(target: Admin, session: MirrorSession, wanted: Mapping[str, Copy]) -> bool:
    """Ensure that all topics in `wanted` exist with enough partitions. True if anything had to be done.

    Raises OptionError for a topic that is too small and not the session's own, MirrorError for one that the
    session wrote to and that no longer exists.
    """
    existing = await existing_copies(target, session, wanted)
    grown = {}
    for name, found in existing.items():
        count, needed = len(found.partitions), wanted[name].partitions
        if count >= needed:
            continue
        if session.topic_id("to", name) is None:
            raise OptionError(
                f"topic {name!r} has {count} partitions, its source has {needed}: copy to another name, or"
                " give it as many"
            )
        grown[name] = needed
    missing = [
        NewTopic(name, copy.partitions, topic_configs={_TIMESTAMPS: "CreateTime"} | dict(copy.settings))
        for name, copy in wanted.items()
        if name not in existing
    ]
    if missing:
        await target.create_topics(missing)
    if grown:
        await target.create_partitions(grown)
    return bool(missing or grown)


async def existing_copies(
    target: Admin, session: MirrorSession, names: Iterable[str]
) -> dict[str, TopicDescription]:
    """Those of the topics that exist. Raises MirrorError for one that is not the one the session knows."""
    present = set(await target.list_topics())
    names = list(names)
    if gone := [name for name in names if name not in present and session.topic_id("to", name) is not None]:
        raise MirrorError(
            f"topic {gone[0]!r}, which this session wrote to, is gone: restore it, or start with a new"
            " session, which writes the records that the source still has"
        )
    found = {each.name: each for each in await target.describe_topics([n for n in names if n in present])}
    for name, each in found.items():
        if session.topic_id("to", name) is not None:
            session.keep_topic("to", name, each.topic_id)
    return found


async def settings_for_copies(source: Admin, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """By topic the settings to make its copy with: how long records are kept, where that is not Kafka's
    default, and batches as large as its own.

    Raises OptionError for a compacted topic, which cannot be copied record by record.
    """
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    settings: dict[str, dict[str, str]] = {}
    for resource, entries in (await source.describe_configs(resources)).items():
        values = {each.name: each for each in entries if each.value is not None}
        policy = values.get("cleanup.policy")
        if policy is not None and "compact" in (policy.value or ""):
            raise OptionError(
                f"topic {resource.name!r} is compacted: records could be removed while they are mirrored,"
                " so a second read could differ. Copy it with delivery=at_least_once"
            )
        kept = {
            name: str(each.value)
            for name in _KEPT_SETTINGS
            if (each := values.get(name)) is not None and each.source != _OF_DEFAULT
        }
        if (largest := values.get(_LARGEST_BATCH)) is not None:
            kept[_LARGEST_BATCH] = str(min(int(largest.value or 0) + _HEADER_BYTES, 2**31 - 1))
        settings[resource.name] = kept
    return settings
