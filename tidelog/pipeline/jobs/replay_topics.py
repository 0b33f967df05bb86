"""The topics that a replay writes to: missing ones are created, and those that hold the records are refused.

Owns the rule that a replay into the records' own topic restores only records that are gone from it.
"""

import asyncio
from collections.abc import Mapping

from tidelog.client import Admin, TopicDescription
from tidelog.pipeline.jobs.copies import Copy, existing_copies, make_copies
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.mirror.session_folder import MirrorSession
from tidelog.pipeline.offsets import OptionError, Place
from tidelog.pipeline.source.fetch import find_bounds

_FOR_OLD_RECORDS = {"retention.ms": "-1"}


async def prepare_topics(
    settings: "ReplaySettings",
    session: MirrorSession,
    topic_ids: Mapping[str, str],
    bounds: Mapping[Place, tuple[int, int]],
) -> None:
    """Ensure that the topics to write to exist, and are those of the session. `topic_ids` holds the known ids
    of the topics of the records in `bounds`.

    Raises OptionError, MirrorError, ClientError.
    """
    counts: dict[str, int] = {}
    for place in bounds:
        name = settings.to_topic or place.topic
        counts[name] = max(counts.get(name, 0), place.partition + 1)
    async with Admin(cluster=settings.cluster) as admin:
        existing = await existing_copies(admin, session, counts)
        await _check_origin(settings, existing, topic_ids, bounds)
        for topic in {place.topic for place in bounds} & topic_ids.keys():
            session.keep_topic("from", topic, topic_ids[topic])
        copies = {name: Copy(count, _FOR_OLD_RECORDS) for name, count in counts.items()}
        await make_copies(admin, session, copies)


async def _check_origin(
    settings: "ReplaySettings",
    existing: Mapping[str, TopicDescription],
    topic_ids: Mapping[str, str],
    bounds: Mapping[Place, tuple[int, int]],
) -> None:
    """Raises OptionError if a topic would get records that it holds: its id is that of their topic."""
    own = [
        place
        for place in bounds
        if (target := existing.get(settings.to_topic or place.topic)) is not None
        and str(target.topic_id) == topic_ids.get(place.topic)
    ]
    if not own:
        return
    held = await asyncio.to_thread(find_bounds, settings.cluster, None, own)
    for place in own:
        (start, end), (log_start, log_end) = bounds[place], held[place]
        if end > log_start and start < log_end:
            raise OptionError(
                f"{place} still holds its offsets {log_start} to {log_end - 1}, and would get those from"
                f" {max(start, log_start)} on a second time: give to_topic another name, or end_offset, at"
                f" most {log_start}, to bring back only what is gone"
            )
