"""Which topics a mirror reads, and the name of each copy.

Owns the rule that no copy is mirrored again: on one cluster, no topic is both read and written, also not by
the pattern. `pipeline.jobs.copies` has the requirements on topics and copies.

Runs at the mirror's start and repeatedly while it runs: new topics that match the pattern, and new
partitions, get their copies.
"""

from collections import Counter
from typing import NamedTuple

from tidelog.client import Admin, TopicDescription
from tidelog.pipeline.jobs.copies import Copy, existing_copies, make_copies, settings_for_copies
from tidelog.pipeline.jobs.mirror_origin import check_origins
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
from tidelog.pipeline.mirror.session_folder import MirrorSession
from tidelog.pipeline.offsets import NO_TOPIC_ID, OptionError, fits


class Prepared(NamedTuple):
    """How many topics there are to read, and whether a copy had to be made or to grow."""

    topics: int
    is_changed: bool


async def prepare_topics(settings: "MirrorSettings", session: MirrorSession) -> Prepared:
    """Ensure that every topic's copy can take its records.

    Raises OptionError if they cannot be mirrored, MirrorError if a topic or a copy is not the one that the
    session knows, ClientError.
    """
    async with Admin(cluster=settings.cluster) as source, Admin(cluster=settings.target) as target:
        described = await _sources(source, settings)
        targets = {each.name: settings.copy_of(each.name) for each in described}
        clusters = [(await each.describe_cluster()).cluster_id for each in (source, target)]
        check_targets(settings, targets, is_same_cluster=clusters[0] == clusters[1])
        configs = await settings_for_copies(source, targets)
        # Without topic ids, a new topic cannot be distinguished from the one that the session knows.
        new = {
            each.name: len(each.partitions)
            for each in described
            if each.topic_id != NO_TOPIC_ID and session.topic_id("from", each.name) is None
        }
        present = await existing_copies(target, session, [targets[name] for name in new]) if new else {}
        copies = {
            name: (copy.name, min(count, len(copy.partitions)))
            for name, count in new.items()
            if (copy := present.get(targets[name])) is not None
        }
        is_projected = settings.select is not None
        await check_origins(settings.cluster, settings.target, copies, is_projected=is_projected)
        for each in described:
            session.keep_topic("from", each.name, each.topic_id)
        wanted = {
            targets[each.name]: Copy(len(each.partitions), configs.get(each.name, {})) for each in described
        }
        return Prepared(len(described), await make_copies(target, session, wanted))


def check_targets(settings: "MirrorSettings", targets: dict[str, str], *, is_same_cluster: bool) -> None:
    """Raises OptionError if two topics have one copy, or a copy would be mirrored again. `targets` holds
    the names of copies by those of their sources."""
    if twice := [copy for copy, sources in Counter(targets.values()).items() if sources > 1]:
        raise OptionError(f"two topics would be mirrored to {twice[0]!r}: give each its own name")
    if not is_same_cluster:
        return
    for name, copy in targets.items():
        if copy == name:
            raise OptionError(
                f"topic {name!r} would be mirrored onto itself: give a rename or a prefix, or another"
                " cluster in to_bootstrap_servers"
            )
        if copy in targets or (settings.topic_pattern and fits(settings.topic_pattern, copy)):
            raise OptionError(
                f"{copy!r}, the copy of {name!r}, would be mirrored again, without end: choose names for"
                " copies that are not read"
            )


async def _sources(source: Admin, settings: "MirrorSettings") -> list[TopicDescription]:
    if settings.topic_pattern is None:
        return await source.describe_topics(settings.topics)
    names = [name for name in await source.list_topics() if fits(settings.topic_pattern, name)]
    return [each for each in await source.describe_topics(names) if not each.is_internal]
