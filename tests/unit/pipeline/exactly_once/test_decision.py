"""The record of a decision, and which batch may follow which."""

from dataclasses import replace

import pytest

from tidelog.client import CommittedOffset, TopicPartition
from tidelog.pipeline.exactly_once.decision import (
    ANCHOR,
    NO_BATCH,
    Decision,
    ExactlyOnceError,
    TransactionName,
    following,
    from_offsets,
    group_of,
    run_of,
    to_offsets,
)

LAST = Decision(7, "query", "run", "plan", "write", (3, 4))
NEXT_RUN = replace(LAST, run="another run", write="another write", attempts=(9,))


def as_committed(decision: Decision) -> dict[TopicPartition, CommittedOffset]:
    return {
        where: CommittedOffset(offset, -1, metadata)
        for where, (offset, metadata, _) in to_offsets(decision).items()
    }


@pytest.mark.parametrize("attempts", [0, 2, 5000])
def test_a_decision_of_any_size_is_read_as_it_was_committed(attempts: int) -> None:
    decision = replace(LAST, attempts=tuple(range(attempts)))
    committed = as_committed(decision)
    assert all(len(each.metadata) <= 4096 and each.offset == 8 for each in committed.values())
    assert from_offsets("sink", committed) == decision


def test_pieces_of_an_earlier_longer_decision_are_ignored() -> None:
    longer = as_committed(replace(LAST, batch=6, attempts=tuple(range(5000))))
    assert from_offsets("sink", longer | as_committed(LAST)) == LAST
    assert from_offsets("sink", {}) is None


def test_offsets_of_another_program_are_refused() -> None:
    first = TopicPartition(ANCHOR, 0)
    for metadata in ("", "1 {}", "2 {", '1 {"format":2,"batch":0}'):
        with pytest.raises(ExactlyOnceError, match=r"committed offsets of group tidelog-sink\.sink"):
            from_offsets("sink", {first: CommittedOffset(1, -1, metadata)})
    moved = {where: each._replace(offset=5) for where, each in as_committed(LAST).items()}
    with pytest.raises(ExactlyOnceError, match="Another program"):
        from_offsets("sink", moved)


def test_a_run_is_known_by_sparks_job_group_and_another_group_is_refused() -> None:
    run = "a514095c-6d8e-458f-bb23-db072b59aacb"
    assert run_of("query", run) == run
    assert run_of("", "etl") == ""
    with pytest.raises(ExactlyOnceError, match="set the job group to 'etl'"):
        run_of("query", "etl")


def test_a_transactional_id_names_its_sink_batch_write_and_attempt() -> None:
    name = TransactionName("orders-1", 7, "a1b2", 12)
    assert str(name) == "tidelog-sink.orders-1.7.a1b2.12"
    assert TransactionName.parse(str(name)) == name
    others = (group_of("orders-1"), "orders-1.7.a1b2.12", "tidelog-sink.orders-1.x.a1b2.12")
    assert [TransactionName.parse(each) for each in others] == [None, None, None]


def test_a_later_batch_is_decided_and_a_decided_one_is_kept() -> None:
    following_batch = replace(NEXT_RUN, batch=8, plan="next plan")
    assert following("sink", None, LAST) == LAST
    assert following("sink", Decision(NO_BATCH), LAST) == LAST
    assert following("sink", LAST, following_batch) == following_batch
    assert following("sink", LAST, NEXT_RUN) is LAST
    assert following("sink", LAST, replace(LAST)) is LAST


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (replace(NEXT_RUN, query="new"), "belongs to query query, this is new"),
        (replace(NEXT_RUN, query="", run=""), "this is a batch job"),
        (replace(NEXT_RUN, batch=6), "and batch 7 since. Either another driver runs this query"),
        (replace(NEXT_RUN, plan="other"), "newer copy of the checkpoint"),
        (replace(LAST, write="again"), "already written in this run"),
    ],
)
def test_what_cannot_follow_the_last_decision_is_refused(wanted: Decision, message: str) -> None:
    with pytest.raises(ExactlyOnceError, match=message):
        following("sink", LAST, wanted)


def test_a_batch_job_may_repeat_a_number_because_it_has_no_run() -> None:
    job = replace(LAST, query="", run="", plan="")
    assert following("sink", job, replace(job, write="again")) is job
    with pytest.raises(ExactlyOnceError, match=r"batch=6 is lower than 7.* from 8 on") as refused:
        following("sink", job, replace(job, batch=6, write="again"))
    assert "checkpoint" not in str(refused.value)
