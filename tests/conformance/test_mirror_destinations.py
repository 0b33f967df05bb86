"""What a mirror makes of a destination that is not as its session remembers it: known again, or refused."""

from pathlib import Path

import pytest

from tests.conformance.client_site import TOPIC, Site
from tests.conformance.test_mirror_tasks import SOURCE, Run, rows, stored
from tidelog.client import ClusterConfig, TopicPartition
from tidelog.pipeline.jobs.mirror_origin import check_rivals
from tidelog.pipeline.mirror.session_folder import BatchFacts, MirrorError, MirrorSession, SourceFacts
from tidelog.pipeline.mirror.tail import SOURCE_HEADER
from tidelog.pipeline.offsets import Place

SOURCE_0 = Place(SOURCE, 0)
KEY = TopicPartition(TOPIC, 0)


@pytest.fixture
def session(tmp_path: Path) -> MirrorSession:
    return MirrorSession.open(str(tmp_path / "session"), "plan")


async def test_a_destination_that_lost_records_is_refused(site: Site, session: MirrorSession) -> None:
    await site.create()
    run = Run(site, session, "run")
    run.commit(0, await run.execute(0, rows(0, 0, 30)))
    async with site.admin() as admin:
        await admin.delete_topics([TOPIC])
    await site.create()
    with pytest.raises(MirrorError, match="created again since this session wrote to it"):
        await run.execute(1, rows(0, 30, 60))


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_destination_restored_from_an_older_copy_is_refused(
    site: Site, session: MirrorSession, *, is_forgotten: bool, is_restarted: bool
) -> None:
    await site.create()
    run = Run(site, session, "run")
    older = run.commit(0, await run.execute(0, rows(0, 0, 30)))
    # As if the copy had been taken here: 30 more rows were stored, and are gone; others wrote since.
    stood = older.sources[SOURCE_0]
    place = stood.places[KEY]._replace(next_sequence=60, end_offset=60, position=59)
    facts = SourceFacts(stood.producer_id, int(is_restarted), 59, {KEY: place})
    session.close_batch(1, BatchFacts("run", {SOURCE_0: facts}))
    async with site.producer() as producer:
        for _ in range(50):
            await producer.send_and_wait(TOPIC, b"9:0", partition=0)
    if is_forgotten:
        site.broker.services.replica(TOPIC, 0).log.producers.forget(stood.producer_id)
    with pytest.raises(MirrorError, match="lost records of orders-0, or is another topic"):
        await run.execute(2, rows(0, 60, 90))
    assert await stored(site) == list(range(30))


async def test_a_task_without_anything_to_send_leaves_the_place_as_it_was(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run, successor = Run(site, session, "run"), Run(site, session, "successor")
    before = run.commit(0, await run.execute(0, rows(0, 0, 30)))
    successor.commit(1, await successor.execute(1, rows(0, 0, 30)))
    after = successor.commit(2, await successor.execute(2, rows(0, 0, 30)))
    assert after.sources[SOURCE_0].producer_epoch == 1
    assert after.sources[SOURCE_0].places == before.sources[SOURCE_0].places
    await successor.execute(3, rows(0, 30, 60))
    assert await stored(site) == list(range(60))


async def test_what_an_earlier_session_stored_is_known_for_as_many_batches_as_it_takes(
    site: Site, session: MirrorSession, tmp_path: Path
) -> None:
    await site.create()
    earlier = Run(site, MirrorSession.open(str(tmp_path / "earlier"), "plan"), "run")
    await earlier.execute(0, rows(0, 0, 50))
    run = Run(site, session, "run")
    for batch, written in enumerate((0, 0, 10, 20)):
        first = 20 * batch
        done = await run.execute(batch, rows(0, first, first + 20))
        assert done[1:] == (20, written, 20 - written)
        run.commit(batch, done)
    assert await stored(site) == list(range(80))


async def test_a_session_does_not_go_on_where_another_one_did_since(
    site: Site, session: MirrorSession, tmp_path: Path
) -> None:
    await site.create()
    run = Run(site, session, "run")
    run.commit(0, await run.execute(0, rows(0, 0, 20)))
    await check_rivals(session, ClusterConfig(site.address))
    # Its own, of a batch in which it was killed.
    await run.execute(1, rows(0, 20, 30))
    await check_rivals(session, ClusterConfig(site.address))
    other = MirrorSession.open(str(tmp_path / "other"), "plan")
    await Run(site, other, "run").execute(0, rows(0, 0, 50))
    await check_rivals(other, ClusterConfig(site.address))
    with pytest.raises(MirrorError, match="up to offset 49 that another mirror stored"):
        await check_rivals(session, ClusterConfig(site.address))


async def test_rows_are_known_among_those_of_other_sources_that_somebody_stored_with_them(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    async with site.producer() as producer:
        batch = producer.create_batch()
        for source, n in [(0, 0), (1, 7), (0, 1), (1, 8)]:
            header = (SOURCE_HEADER, b"%s-%d@%d" % (SOURCE.encode(), source, n))
            batch.append(value=b"%d:%d" % (source, n), headers=[header])
        await (await producer.send_batch(batch, TOPIC, partition=0))
    assert (await Run(site, session, "run").execute(0, rows(0, 0, 5)))[1:] == (5, 3, 2)
    assert await stored(site) == list(range(5))


async def test_what_retention_took_of_a_forgotten_producer_is_not_missed(
    site: Site, session: MirrorSession
) -> None:
    await site.create()
    run = Run(site, session, "run")
    facts = run.commit(0, await run.execute(0, rows(0, 0, 30)))
    log = site.broker.services.replica(TOPIC, 0).log
    log.delete_records_before(30)
    assert log.producers.forget(facts.sources[SOURCE_0].producer_id)
    assert (await run.execute(1, rows(0, 20, 60)))[1:] == (40, 30, 10)
    assert (log.start_offset, log.end_offset) == (30, 60)
