"""Topics that a mirror or a replay writes to: made as their sources need it, refused if they are others."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client_site import Site
from tidelog.client import Admin, ClusterConfig, ConfigResource, ConfigResourceType, NewTopic
from tidelog.pipeline.jobs.copies import only_run
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
from tidelog.pipeline.jobs.mirror_topics import prepare_topics
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.jobs.replay_topics import prepare_topics as prepare_replay
from tidelog.pipeline.mirror.session_folder import MirrorError, MirrorSession
from tidelog.pipeline.mirror.tail import SOURCE_HEADER
from tidelog.pipeline.offsets import OptionError, Place


@pytest.fixture
async def admin(site: Site) -> AsyncIterator[Admin]:
    async with site.admin() as admin:
        yield admin


@pytest.fixture
def session(tmp_path: Path) -> MirrorSession:
    return MirrorSession(str(tmp_path / "session"), "")


def mirror(site: Site, session: MirrorSession, **given: Any) -> MirrorSettings:
    return MirrorSettings(session.path, ClusterConfig(site.address), **given)


async def topic_id(admin: Admin, name: str) -> object:
    return (await admin.describe_topics([name]))[0].topic_id


async def test_a_copy_has_its_sources_partitions_and_keeps_records_as_long(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    configs = {"retention.ms": "-1", "max.message.bytes": "4000000", "segment.ms": "600000"}
    await admin.create_topics([NewTopic("kept", 3, 1, configs), NewTopic("plain", 1)])
    settings = mirror(site, session, topic_pattern="kept|plain", prefix="copy.")
    assert await prepare_topics(settings, session) == (2, True)
    assert await prepare_topics(settings, session) == (2, False)
    copies = await admin.describe_topics(["copy.kept", "copy.plain"])
    assert [len(each.partitions) for each in copies] == [3, 1]
    resources = [ConfigResource(ConfigResourceType.TOPIC, each.name) for each in copies]
    given = {
        resource.name: {each.name: each.value for each in entries if each.source == 1}
        for resource, entries in (await admin.describe_configs(resources)).items()
    }
    kept = {"retention.ms": "-1", "max.message.bytes": "4001024", "message.timestamp.type": "CreateTime"}
    assert given["copy.kept"] == kept
    assert "retention.ms" not in given["copy.plain"]


async def test_only_a_copy_that_the_session_wrote_to_grows_with_its_source(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    await admin.create_topics([NewTopic("wide", 2), NewTopic("copy.wide", 1)])
    settings = mirror(site, session, topics=("wide",), prefix="copy.")
    with pytest.raises(OptionError, match=r"'copy.wide' has 1 partitions, its source has 2"):
        await prepare_topics(settings, session)
    session.keep_topic("to", "copy.wide", await topic_id(admin, "copy.wide"))
    assert (await prepare_topics(settings, session)).is_changed
    assert len((await admin.describe_topics(["copy.wide"]))[0].partitions) == 2


async def test_a_topic_or_a_copy_that_is_another_one_now_is_refused(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    await admin.create_topics([NewTopic("t", 1)])
    settings = mirror(site, session, topics=("t",), prefix="copy.")
    await prepare_topics(settings, session)
    session.keep_topic("to", "copy.t", await topic_id(admin, "copy.t"))
    await admin.delete_topics(["copy.t"])
    with pytest.raises(MirrorError, match=r"'copy.t', which this session wrote to, is gone"):
        await prepare_topics(settings, session)
    await admin.create_topics([NewTopic("copy.t", 1)])
    with pytest.raises(MirrorError, match=r"'copy.t' was deleted and created again since this session wrote"):
        await prepare_topics(settings, session)
    await admin.delete_topics(["t"])
    await admin.create_topics([NewTopic("t", 1)])
    with pytest.raises(
        MirrorError, match="'t' was deleted and created again since this session began to read"
    ):
        await prepare_topics(settings, session)


async def test_a_copy_of_another_topic_of_the_name_is_refused_before_its_records_pass_for_stored(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    async def append(topic: str, first: int, end: int, source: str | None = None) -> None:
        async with site.producer() as producer:
            for n in range(first, end):
                named = [] if source is None else [(SOURCE_HEADER, b"%s-0@%d" % (source.encode(), n))]
                await producer.send(topic, b"%d" % n, partition=0, timestamp_ms=10**12 + n, headers=named)

    settings = mirror(site, session, topics=("t",), prefix="copy.")
    await admin.create_topics([NewTopic("t", 2), NewTopic("copy.t", 2)])
    await append("t", 0, 10)
    await append("copy.t", 0, 8, source="t")
    assert await prepare_topics(settings, session) == (1, False)
    # As on another cluster, or after it was deleted: others' records at the same offsets.
    for end, message in (
        (5, "goes up to its offset 7, and it ends at 5"),
        (20, "another record as its offset"),
    ):
        await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic("t", 2)])
        await append("t", 100, 100 + end)
        for _ in range(2):
            with pytest.raises(MirrorError, match=message):
                await prepare_topics(settings, MirrorSession(f"{session.path}-{end}", ""))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topics": ("a",)}, "'a' would be mirrored onto itself"),
        ({"topics": ("a", "b"), "rename": ("a=b", "b=a")}, "'b', the copy of 'a', would be mirrored again"),
        ({"topic_pattern": ".*a", "prefix": "x."}, r"'x.a', the copy of 'a', would be mirrored again"),
        ({"topic_pattern": "[ab]", "rename": ("a=x.b",), "prefix": "x."}, r"mirrored to 'x.b'"),
    ],
)
async def test_no_copy_is_mirrored_again(
    site: Site, admin: Admin, session: MirrorSession, given: dict[str, Any], message: str
) -> None:
    await admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)])
    with pytest.raises(OptionError, match=message):
        await prepare_topics(mirror(site, session, **given), session)
    assert await admin.list_topics() == ["a", "b"]


async def test_a_replay_brings_back_into_a_topic_only_what_is_gone_from_it(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    await admin.create_topics([NewTopic("t", 1)])
    async with site.producer() as producer:
        for _ in range(10):
            await producer.send_and_wait("t", b"", partition=0)
    ids = {"t": str(await topic_id(admin, "t"))}
    settings = ReplaySettings(ClusterConfig(site.address), "archive", to_topic="t")
    with pytest.raises(OptionError, match="t-0 still holds its offsets 0 to 9"):
        await prepare_replay(settings, session, ids, {Place("t", 0): (5, 8)})
    site.broker.services.replica("t", 0).log.delete_records_before(8)
    await prepare_replay(settings, session, ids, {Place("t", 0): (5, 8)})
    # Another topic that was called so once.
    await prepare_replay(settings, MirrorSession(session.path + "2", ""), {}, {Place("t", 0): (5, 9)})
    with pytest.raises(MirrorError, match="began to read it"):
        await prepare_replay(settings, session, {"t": str(uuid.uuid4())}, {Place("t", 0): (5, 9)})


async def test_a_topic_that_a_replay_makes_keeps_old_records(
    site: Site, admin: Admin, session: MirrorSession
) -> None:
    settings = ReplaySettings(ClusterConfig(site.address), "archive")
    await prepare_replay(settings, session, {}, {Place("t", 2): (0, 10)})
    assert len((await admin.describe_topics(["t"]))[0].partitions) == 3
    (entries,) = (await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])).values()
    assert {each.name: each.value for each in entries}["retention.ms"] == "-1"
    with pytest.raises(OptionError, match="'t' has 3 partitions, its source has 4"):
        await prepare_replay(settings, session, {}, {Place("t", 3): (0, 10)})


def test_two_runs_at_once_are_refused_until_one_has_ended(session: MirrorSession, tmp_path: Path) -> None:
    for _ in range(2):
        with only_run(session), pytest.raises(MirrorError, match="another run is at work"), only_run(session):
            pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OptionError, match="no session can be kept"),
        only_run(MirrorSession(str(tmp_path / "file" / "session"), "")),
    ):
        pass
