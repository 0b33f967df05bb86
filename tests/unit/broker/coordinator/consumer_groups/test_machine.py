"""Groups of the consumer protocol beside what they commit: who may commit and fetch, and who may delete."""

from functools import partial
from typing import Any

from tests.unit.broker.coordinator.consumer_groups.site import Site, code_of, topic_id
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.protocol.errors import ErrorCode


def commit(site: Site, member_id: str, epoch: int, version: int = 9, topic: str = "t") -> None:
    record = OffsetRecord("g", topic, 0, CommittedOffset(5, topic_id=topic_id(topic)))
    site.run(site.machine.offsets.commit("g", Committer(epoch, member_id, None, version), [record]))


def fetched(site: Site, member_id: str | None, epoch: int) -> Any:
    return site.machine.offsets.fetch("g", None, member_id, epoch)


def test_a_member_commits_and_fetches_with_its_own_epoch_alone(site: Site) -> None:
    client = site.join("a")
    client.beat(names=["t", "u"])
    commit(site, "a", 2)
    assert fetched(site, "a", 2)["t"][0].offset == 5
    for epoch in (1, 3):
        assert code_of(partial(commit, site, "a", epoch)) == ErrorCode.STALE_MEMBER_EPOCH
        assert code_of(partial(fetched, site, "a", epoch)) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(partial(commit, site, "b", 2)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(partial(fetched, site, "b", 2)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_any_client_may_fetch_and_only_members_may_commit_while_a_group_has_members(site: Site) -> None:
    client = site.join("a")
    commit(site, "a", 1)
    assert fetched(site, None, -1)
    assert code_of(partial(commit, site, "", -1)) == ErrorCode.UNKNOWN_MEMBER_ID
    client.leave()
    commit(site, "", -1)


def test_a_commit_that_has_no_error_for_an_old_epoch_is_refused(site: Site) -> None:
    site.join("a")
    assert code_of(partial(commit, site, "a", 1, 8)) == ErrorCode.UNSUPPORTED_VERSION


def test_a_transaction_commits_with_the_epoch_of_its_member_and_gets_the_errors_that_it_knows() -> None:
    site = Site()
    site.join("a")
    for epoch, code in ((1, None), (2, ErrorCode.ILLEGAL_GENERATION)):
        committer = Committer(epoch, "a", None, 3, is_in_transaction=True)
        check = partial(site.groups.consumer.check_commit, "g", committer, site.now_ms)
        assert check() == {} if code is None else code_of(check) == code


def test_a_group_is_deleted_without_its_members_with_all_its_records(site: Site) -> None:
    client = site.join("a", ["t"], regex=("u.*", set()), instance_id="i")
    commit(site, "a", 1)
    assert code_of(lambda: site.run(partial(site.machine.delete_some, "g"))) == ErrorCode.NON_EMPTY_GROUP
    client.leave()
    site.run(partial(site.machine.delete_some, "g"))
    assert (site.log, site.groups.ids(), site.groups.consumer.held_bytes) == ({}, [], 0)
    assert code_of(lambda: site.run(partial(site.machine.delete_some, "g"))) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_and_offsets_is_forgotten(site: Site) -> None:
    client = site.join("a")
    site.run(partial(site.machine.forget_idle, ["g"]))
    client.leave()
    site.run(partial(site.machine.forget_idle, ["g"]))
    assert not site.log


def test_offsets_of_a_topic_that_members_read_are_neither_deleted_nor_expired() -> None:
    site = Site({"t": 1, "u": 1})
    site.join("a", regex=("t", {"t"}))
    for topic in ("t", "u"):
        commit(site, "a", 1, topic=topic)
    site.now_ms += 10_000
    deleted = site.run(site.machine.offsets.delete("g", [("t", [0])])).answer
    assert deleted == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    site.run(site.machine.offsets.begin_sweep)
    site.run(lambda now_ms: site.machine.offsets.sweep(now_ms, topic_id))
    assert set(fetched(site, None, -1)) == {"t"}


def test_an_id_belongs_to_a_group_of_one_type(site: Site) -> None:
    assert site.machine.listed(["g"]) == []
    site.join("a")
    (entry,) = site.machine.listed(["g"])
    assert entry == ("g", "Stable", "consumer", "consumer")
    assert site.machine.describe("g").state.value == "Dead"
    assert site.groups.consumer.describe("other") is None
