"""What senders and readers of partitions must agree on: the rules of Jepsen's workload for Kafka.

Pure. The names of the anomalies are Jepsen's: jepsen/src/jepsen/tests/kafka.clj. A record that stands twice
is a duplicate of the broker if both copies have the same producer id, epoch and sequence, which a broker must
recognise; otherwise the client sent it anew, as when it raises its epoch, and no broker can know.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from faults.histories.history import GARBAGE_READ, Anomaly, Edge

INCONSISTENT_OFFSETS: Final = "inconsistent offsets"
DUPLICATE: Final = "duplicate of the broker"
DUPLICATE_OF_CLIENT: Final = "duplicate of a client's retry"
LOST_WRITE: Final = "lost write"
UNSEEN: Final = "unseen"
ABORTED_READ: Final = "aborted read"
POLL_SKIP: Final = "poll skip"
NONMONOTONIC_POLL: Final = "nonmonotonic poll"
NONMONOTONIC_SEND: Final = "nonmonotonic send"
STALE_READ: Final = "stale read"


Log = Sequence[tuple[int, Any]]
"""Offset and value of each record that a consumer got, in the order in which it got them."""


class Send(NamedTuple):
    """A record that `producer` sent, in the order of its sends. `offset` is what was acknowledged, None if
    that is not known; `failed`: it was reported as not stored, or its transaction was aborted."""

    producer: Hashable
    partition: int
    value: Any
    offset: int | None = None
    acknowledged: bool = True
    failed: bool = False


class Stored(NamedTuple):
    """A record in the segment files, with what identifies it to the broker."""

    offset: int
    value: Any
    producer_id: int
    epoch: int
    sequence: int


class Look(NamedTuple):
    """A reader asked for a partition's end after `acknowledged_end` was promised, and got `end`."""

    partition: int
    acknowledged_end: int
    end: int


@dataclass
class Records:
    """What was observed of partitions, which have numbers. `polls`: reader -> partition -> what one consumer
    that was not moved got, to the end of the partition."""

    sends: Sequence[Send] = ()
    polls: Mapping[str, Mapping[int, Log]] = field(default_factory=dict)
    stored: Mapping[int, Sequence[Stored]] = field(default_factory=dict)
    looks: Sequence[Look] = ()


def check(records: Records) -> list[Anomaly]:
    """Every anomaly. Those of a client's retry are among them: `DUPLICATE_OF_CLIENT`."""
    return [
        *_check_offsets(records),
        *_check_duplicates(records.stored),
        *_check_sends(records.sends),
        *_check_polls(records),
        *_check_lost(records),
        *_check_looks(records.looks),
    ]


def _anomaly(name: str, text: str, *edges: tuple[str, str, str]) -> Anomaly:
    return Anomaly(name, text, tuple(Edge(source, name, target, why) for source, why, target in edges))


def _check_offsets(records: Records) -> Iterator[Anomaly]:
    """All who saw an offset saw the same value there."""
    seen: dict[tuple[int, int], tuple[str, Any]] = {}
    claims: list[tuple[str, int, int, Any]] = [
        (f"{each.producer}'s acknowledgement", each.partition, each.offset, each.value)
        for each in records.sends
        if each.offset is not None
    ]
    for reader, logs in records.polls.items():
        claims += [(reader, partition, *each) for partition, log in logs.items() for each in log]
    for who, partition, offset, value in claims:
        first, expected = seen.setdefault((partition, offset), (who, value))
        if value != expected:
            where = f"{partition}@{offset}"
            text = f"{where} is {expected} for {first} and {value} for {who}"
            edges = (first, f"{expected}", where), (who, f"{value}", where)
            yield _anomaly(INCONSISTENT_OFFSETS, text, *edges)


def _check_duplicates(stored: Mapping[int, Sequence[Stored]]) -> Iterator[Anomaly]:
    for partition, log in stored.items():
        places: dict[Any, list[Stored]] = defaultdict(list)
        for each in log:
            places[each.value].append(each)
        for value, several in places.items():
            for first, second in pairwise(several):
                is_same = first[2:] == second[2:]
                text = f"{value} stands in {partition} at {first.offset} and {second.offset}"
                ids = [f"producer {each[2]}, epoch {each[3]}, sequence {each[4]}" for each in (first, second)]
                edges = tuple(
                    (ids[index], f"stored {value}", f"{partition}@{each.offset}")
                    for index, each in enumerate((first, second))
                )
                name = DUPLICATE if is_same else DUPLICATE_OF_CLIENT
                yield _anomaly(name, f"{text}: {ids[0]}; {ids[1]}", *edges)


def _check_sends(sends: Iterable[Send]) -> Iterator[Anomaly]:
    """Of one producer, later sends to a partition get later offsets."""
    latest: dict[tuple[Hashable, int], Send] = {}
    for send in sends:
        if send.offset is None:
            continue
        before = latest.get((send.producer, send.partition))
        if before is not None and before.offset is not None and send.offset <= before.offset:
            text = f"{send.producer} sent {before.value}, then {send.value} to {send.partition}"
            edge = f"{send.value}@{send.offset}", "sent later", f"{before.value}@{before.offset}"
            yield _anomaly(NONMONOTONIC_SEND, f"{text}: at {before.offset}, then {send.offset}", edge)
        latest[send.producer, send.partition] = send


def _check_polls(records: Records) -> Iterator[Anomaly]:
    """A consumer gets each record between two that it gets, in their order, and only what was sent."""
    by_value = {(send.partition, send.value): send for send in records.sends}
    orders: dict[int, list[int]] = defaultdict(list)
    for partition in {partition for logs in records.polls.values() for partition in logs}:
        offsets = {offset for logs in records.polls.values() for offset, _ in logs.get(partition, ())}
        orders[partition] = sorted(offsets)
    for reader, logs in records.polls.items():
        for partition, log in logs.items():
            place_of = {offset: place for place, offset in enumerate(orders[partition])}
            for (before, _), (after, _) in pairwise(log):
                edge = reader, f"{before}, then {after}", str(partition)
                if after <= before:
                    text = f"{reader} got offset {before} of {partition}, then {after}"
                    yield _anomaly(NONMONOTONIC_POLL, text, edge)
                elif place_of[after] != place_of[before] + 1:
                    skipped = orders[partition][place_of[before] + 1]
                    text = f"{reader} got offset {before} of {partition}, then {after}, and not {skipped}"
                    yield _anomaly(POLL_SKIP, text, edge)
            for offset, value in log:
                send = by_value.get((partition, value))
                edge = f"{partition}@{offset}", f"{value}", reader
                if send is None:
                    text = f"{reader} got {value} of {partition}@{offset}, which nobody sent"
                    yield _anomaly(GARBAGE_READ, text, edge)
                elif send.failed:
                    text = f"{reader} got {value} of {partition}@{offset}, which was reported as not stored"
                    yield _anomaly(ABORTED_READ, text, (str(send.producer), "failed", edge[0]), edge)


def _check_lost(records: Records) -> Iterator[Anomaly]:
    """What was acknowledged was read: below what was read it is lost, behind it nobody saw it."""
    found: dict[int, set[Any]] = defaultdict(set)
    highest: dict[int, int] = {}
    for logs in records.polls.values():
        for partition, log in logs.items():
            found[partition] |= {value for _, value in log}
            highest[partition] = max(highest.get(partition, -1), *(offset for offset, _ in log), -1)
    for send in records.sends:
        if not send.acknowledged or send.failed or send.value in found[send.partition]:
            continue
        where = "an unknown offset" if send.offset is None else f"offset {send.offset}"
        is_behind = send.offset is not None and send.offset > highest.get(send.partition, -1)
        text = f"{send.producer} sent {send.value} to {send.partition}, acknowledged at {where}: not read"
        edge = str(send.producer), f"{send.value} acknowledged", f"{send.partition}: {where}"
        yield _anomaly(UNSEEN if is_behind else LOST_WRITE, text, edge)


def _check_looks(looks: Iterable[Look]) -> Iterator[Anomaly]:
    """KIP-207: a leader that cannot know its end yet refuses to say it."""
    for partition, acknowledged_end, end in looks:
        if end < acknowledged_end:
            text = f"the end of {partition} was {end} after {acknowledged_end} was acknowledged"
            edge = f"acknowledged end {acknowledged_end}", "then asked", f"end {end} of {partition}"
            yield _anomaly(STALE_READ, text, edge)
