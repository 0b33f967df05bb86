"""The judge of damaged folders finds each forbidden outcome, and allows those that say what is wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from faults.checker import Finding, Kind
from faults.damage.files import Damage
from faults.damage.probe import Served, Shown, Told
from faults.damage.sample import SentBatch, Stop
from faults.damage.verdict import (
    Case,
    judge_ids,
    judge_partition,
    judge_refusal,
    judge_topics,
    judge_words,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import NO_SEQUENCE

BATCHES = [SentBatch(offset, 2, 100 + offset, 7, offset, bytes(16) + b"%d" % offset) for offset in (0, 2, 4)]
NEW = SentBatch(-1, 1, 200, 7, 6, bytes(16) + b"new")
TOLD = {"event": "log_damage_found", "level": "error", "topic": "t", "partition": 0, "advice": "do this"}


def case(stop: Stop = Stop.CLEAN, damage: Damage = Damage.FLIP, recovery_point: int = 6) -> Case:
    return Case(("t", 0), stop, BATCHES, 0, recovery_point, [damage], ["t-0/00.log"])


def shown(*served: int, **more: Any) -> Shown:
    """A partition that serves these batches as they were written, and takes a new one."""
    found = [_served(BATCHES[offset // 2]) for offset in served]
    values = {"start": 0, "end": 6, "served": found, "new": Told(NEW, 0, 6)} | more
    after = [*found, Served(6, 6, 7, NEW.content)]
    return Shown(**({"served_after": after} | values))


def _served(batch: SentBatch, asked: int | None = None) -> Served:
    return Served(batch.offset if asked is None else asked, batch.offset, batch.end_offset, batch.content)


def kinds(found: Sequence[Finding]) -> set[Kind]:
    return {finding.kind for finding in found}


def judged(seen: Shown, *events: Mapping[str, Any], of: Case | None = None) -> set[Kind]:
    return kinds(judge_partition(of or case(), seen, events))


def test_everything_served_unchanged_is_allowed() -> None:
    resent = [Told(BATCHES[2], 0, 4), Told(BATCHES[1], ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
    assert judged(shown(0, 2, 4, resent=resent, times=[(102, 0, 2)])) == set()


def test_a_reader_of_committed_records_gets_all_of_them_and_no_others() -> None:
    aborted = BATCHES[1]._replace(is_aborted=True)
    marker = SentBatch(6, 1, 300, 7, NO_SEQUENCE, bytes(16) + b"marker")
    of = case()._replace(batches=[BATCHES[0], aborted, BATCHES[2], marker])
    served = {"served": [_served(batch) for batch in of.batches], "end": 7, "new": None}

    def seen(*offsets: int) -> Shown:
        return Shown(**{"start": 0, "committed": [_served(BATCHES[at // 2]) for at in offsets]} | served)

    assert judged(seen(0, 4), of=of) == set()
    assert judged(seen(0, 2, 4), of=of) == {Kind.DIRTY}
    assert judged(seen(4), of=of) == {Kind.MISSING}
    assert judged(seen(0, 2), TOLD, of=of) == set()


def test_a_loss_is_allowed_only_where_an_event_tells_it_with_advice() -> None:
    lost = shown(0, 2, end=4)
    assert judged(lost) == {Kind.SILENT}
    assert judged(lost, TOLD | {"advice": ""}) == {Kind.SILENT}
    assert judged(lost, TOLD | {"level": "info"}) == {Kind.SILENT}
    assert judged(lost, TOLD | {"partition": 1}) == {Kind.SILENT}
    assert judged(lost, TOLD) == set()


def test_an_offline_partition_is_allowed_only_where_an_event_tells_it_and_it_takes_nothing() -> None:
    offline = ErrorCode.KAFKA_STORAGE_ERROR
    refused = Shown(code=offline, new=Told(NEW, offline, -1))
    assert judged(refused) == {Kind.SILENT}
    assert judged(refused, TOLD) == set()
    assert judged(Shown(code=offline, new=Told(NEW, 0, 6)), TOLD) == {Kind.INVENTED}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"served": [_served(BATCHES[0]), _served(BATCHES[2], asked=2)]}, Kind.GAP),
        ({"served": [Served(0, 0, 2, b"other bytes")]}, Kind.INVENTED),
        ({"served": [Served(0, 0, 2, None)]}, Kind.INVENTED),
        ({"served": [Served(6, 6, 8, b"never written")]}, Kind.INVENTED),
        ({"silent": [2]}, Kind.GAP),
        ({"resent": [Told(BATCHES[1], 0, 6)]}, Kind.DUPLICATED),
        ({"new": Told(NEW, 0, 9)}, Kind.MISSING),
    ],
)
def test_no_event_excuses_what_is_never_allowed(wrong: Mapping[str, Any], kind: Kind) -> None:
    assert kind in judged(shown(0, 2, 4, **wrong), TOLD)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_a_batch_that_is_gone_must_not_be_acknowledged_as_a_duplicate(code: ErrorCode) -> None:
    resent = [Told(BATCHES[2], code, 4)]
    assert judged(shown(0, 2, end=4, resent=resent, served_after=[]), TOLD) >= {Kind.MISSING}


def test_a_batch_before_the_start_of_the_log_may_be_a_duplicate_once_that_start_was_sent() -> None:
    resent = [Told(BATCHES[0], 0, 0)]
    moved = shown(2, 4, start=2, resent=resent)
    assert Kind.MISSING in judged(moved)
    assert judged(moved, TOLD | {"event": "log_start_moved", "level": "warning"}) == set()


def test_a_batch_that_was_lost_may_be_stored_anew() -> None:
    stored = Told(BATCHES[2], 0, 4)
    assert (
        judged(shown(0, 2, end=4, resent=[stored], new=None, served_after=[_served(BATCHES[2])]), TOLD)
        == set()
    )


def test_a_refused_batch_needs_an_event() -> None:
    refused = shown(0, 2, 4, resent=[Told(BATCHES[2], ErrorCode.UNKNOWN_PRODUCER_ID, -1)])
    assert judged(refused) == {Kind.SILENT}
    assert judged(refused, TOLD) == set()


def test_a_time_must_lead_to_its_batch_unless_damage_was_reported() -> None:
    wrong = shown(0, 2, 4, times=[(102, 0, 4)])
    assert judged(wrong) == {Kind.WRONG_OFFSET}
    assert judged(wrong, TOLD) == set()


@pytest.mark.parametrize(
    ("stop", "damage", "recovery_point", "is_allowed"),
    [
        (Stop.CLEAN, Damage.CUT_AT_BATCH, 4, False),
        (Stop.KILLED, Damage.CUT_AT_BATCH, 4, True),
        (Stop.KILLED, Damage.CUT_AT_BATCH, 6, False),
        (Stop.KILLED, Damage.ZERO_TAIL, 4, False),
        (Stop.OTHER_BOOT, Damage.ZERO_TAIL, 4, True),
        (Stop.OTHER_BOOT, Damage.ZERO_TAIL, 6, False),
    ],
)
def test_a_log_that_ends_early_is_excused_where_no_file_could_show_it(
    stop: Stop, damage: Damage, recovery_point: int, is_allowed: bool
) -> None:
    found = judged(shown(0, 2, end=4), of=case(stop, damage, recovery_point))
    assert found == (set() if is_allowed else {Kind.SILENT})


def test_a_hole_is_never_excused_as_an_early_end() -> None:
    assert judged(shown(0, 4), of=case(Stop.KILLED, Damage.CUT_AT_BATCH, 0)) == {Kind.SILENT}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"event": "broker_not_started", "error": "cluster.db is damaged; restore it"}'], set()),
        (['{"event": "broker_not_started", "error": "cluster.db is damaged. Put it back"}'], set()),
        (['{"event": "broker_not_started", "error": "cluster.db is damaged"}'], {Kind.SILENT}),
        (['{"event": "broker_not_started", "error": "damaged", "advice": "restore it"}'], {Kind.SILENT}),
        (["Killed"], {Kind.ALARM}),
    ],
)
def test_a_refusal_to_start_names_the_file_and_a_remedy(lines: list[str], expected: set[Kind]) -> None:
    assert kinds(judge_refusal(["cluster.db"], lines)) == expected


def test_a_traceback_is_a_finding_in_an_event_and_beside_them() -> None:
    assert judge_words(['{"event": "a"}']) == []
    assert kinds(judge_words(["Traceback (most recent call last):"])) == {Kind.ALARM}
    assert kinds(judge_words(['{"event": "a", "error": "Traceback (most"}'])) == {Kind.ALARM}


def test_producer_ids_and_topics() -> None:
    assert judge_ids([1, 2], [3, 4]) == []
    assert kinds(judge_ids([1, 2], [2])) == kinds(judge_ids([1], [3, 3])) == {Kind.DUPLICATED}
    assert judge_topics({"t": 2}, {"t": 2, "more": 1}) == []
    assert kinds(judge_topics({"t": 2}, {"t": 1})) == kinds(judge_topics({"t": 2}, {})) == {Kind.MISSING}
