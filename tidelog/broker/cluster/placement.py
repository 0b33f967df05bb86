"""On which brokers the replicas of new partitions are.

Owns the spreading of leaders and replicas over brokers and racks, and the checks of what a request asks for.

Invariant: a replica is in sync from the beginning only if its broker is live when the partition is stored.
One that was fenced meanwhile may come back with another disk, after it left all in-sync sets.

Pure. Source: Kafka's StripedReplicaPlacer and ReplicationControlManager, with their codes and words.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle, islice, zip_longest
from types import MappingProxyType

from tidelog.broker.cluster.catalog import PartitionAssignment, PartitionsAdded, Topic
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As Kafka: one request may not ask for more partitions than this over all its topics."""


def plan_partitions(
    topic: Topic,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    brokers: Sequence[int],
    racks: Mapping[int, str],
    stopping: Collection[int] = (),
) -> Steps[PartitionsAdded]:
    """The delta that grows a topic to `total` partitions; `assignments` are the new ones' replicas. Otherwise
    as `assign`.

    Raises ApiError: INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT.
    """
    present = len(topic.partitions)
    if total == present:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if total < present:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {total} would not be an increase.",
        )
    check_partition_count(total - present)
    factor = len(topic.partitions[0].wanted_replicas)
    if assignments is None:
        begin = topic.topic_id.int + present
        added = assign(total - present, brokers, factor, begin=begin, racks=racks, stopping=stopping)
    else:
        if len(assignments) != total - present:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {total - present} additional partition(s), "
                f"but {len(assignments)} assignment(s) were specified.",
            )
        added = yield from assign_manually(dict(enumerate(assignments)), brokers, factor)
    return PartitionsAdded(topic.topic_id, added)


def check_partition_count(count: int) -> None:
    """Raise ApiError(INVALID_PARTITIONS) for a number of partitions no topic may have."""
    if count <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions are too many: at most {MAX_PARTITIONS_PER_REQUEST} may be created at once.",
        )


def check_replication_factor(factor: int, brokers: Sequence[int]) -> None:
    """Raise ApiError(INVALID_REPLICATION_FACTOR) unless `factor` brokers exist; -1 means the default."""
    if factor == 0 or factor < -1:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): "
            "the target replication factor cannot be reached because "
            f"only {len(brokers)} broker(s) are registered.",
        )


def assign(
    count: int,
    brokers: Sequence[int],
    replication_factor: int = 1,
    *,
    begin: int = 0,
    racks: Mapping[int, str] = MappingProxyType({}),
    stopping: Collection[int] = (),
) -> tuple[PartitionAssignment, ...]:
    """Spread `count` new partitions over the brokers, round robin, and the replicas of each over the racks.

    `begin` chooses the first leader: others for other topics, so that topics of one partition are spread too.
    A broker that is not in `racks` has one of its own. Those of the brokers that are `stopping` get none
    where the others suffice.
    """
    check_partition_count(count)
    check_replication_factor(replication_factor, brokers)
    staying = [broker for broker in brokers if broker not in stopping]
    if len(staying) >= max(replication_factor, 1):
        brokers = staying
    # The assignments repeat: thousands of partitions share a few objects.
    return tuple(islice(cycle(_spread(brokers, max(replication_factor, 1), begin, racks)), count))


def _spread(
    brokers: Sequence[int], copies: int, begin: int, racks: Mapping[int, str]
) -> Iterator[PartitionAssignment]:
    """Each broker leads once in each round; those who follow it are others in the next round."""
    ring = _racks_in_turn(brokers, racks)
    others = len(ring) - 1
    for turn in range(others if copies > 1 else 1):
        for index in range(begin, begin + len(ring)):
            leader = ring[index % len(ring)]
            shifted = (ring[(index + 1 + (turn + at) % others) % len(ring)] for at in range(others))
            replicas = (leader, *_apart(list(shifted), copies - 1, {racks.get(leader)}, racks))
            yield PartitionAssignment(leader, 0, replicas, replicas)


def _racks_in_turn(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    by_rack: dict[str | int, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks.get(broker, broker), []).append(broker)
    return [each for row in zip_longest(*by_rack.values()) for each in row if each is not None]


def _apart(
    candidates: Sequence[int], wanted: int, used: set[str | None], racks: Mapping[int, str]
) -> list[int]:
    """This number of candidates, those in unused racks first."""
    chosen: list[int] = []
    for broker in candidates:
        rack = racks.get(broker)
        if len(chosen) < wanted and (rack is None or rack not in used):
            chosen.append(broker)
            used.add(rack)
    left = (broker for broker in candidates if broker not in chosen)
    return [*chosen, *islice(left, wanted - len(chosen))]


def led_by_live(
    partitions: tuple[PartitionAssignment, ...], live: frozenset[int], stopping: frozenset[int] = frozenset()
) -> tuple[PartitionAssignment, ...]:
    """New partitions when they are stored: the live ones of their replicas are in sync, the first of these
    leads. One that is `stopping` has handed over what it led, and fetches no more: it is in sync only where
    it has the only live replica.

    Raises ApiError(INVALID_REPLICA_ASSIGNMENT) if no replica of one is live.
    """
    if all((live - stopping).issuperset(each.replicas) for each in set(partitions)):
        return partitions
    led = []
    for index, each in enumerate(partitions):
        isr = tuple(replica for replica in each.replicas if replica in live)
        if not isr:
            reason = f"All brokers of the new partition {index} are fenced: {each.replicas}. Try again."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        isr = tuple(replica for replica in isr if replica not in stopping) or isr
        led.append(each._replace(leader_id=isr[0], isr=isr))
    return tuple(led)


def assign_manually(
    assignments: Mapping[int, Sequence[int]], brokers: Sequence[int], factor: int | None = None
) -> Steps[tuple[PartitionAssignment, ...]]:
    """Partitions 0..n-1 on the replicas that were asked for; `factor` of each where the topic says how many.

    Raises ApiError(INVALID_REPLICA_ASSIGNMENT).
    """
    check_partition_count(len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        raise _wrong_assignment("partitions should be a consecutive 0-based integer sequence.")
    pace = Pace()
    assigned = []
    for index in range(len(assignments)):
        replicas = tuple(assignments[index])
        problem = _problem_of(index, replicas, factor or len(assignments[0]), brokers)
        if problem:
            raise _wrong_assignment(problem)
        assigned.append(PartitionAssignment(replicas[0], 0, replicas, replicas))
        if pace.spent(1 + len(replicas) // NUMBERS_PER_ELEMENT):
            yield
    return tuple(assigned)


def _problem_of(index: int, replicas: Sequence[int], factor: int, brokers: Sequence[int]) -> str | None:
    unknown = [broker for broker in replicas if broker not in brokers]
    if not replicas:
        return f"partition {index} has an empty replica list."
    if len(set(replicas)) != len(replicas):
        return f"partition {index} names a broker more than once."
    if unknown:
        return f"partition {index} names unknown broker(s) {unknown}."
    if len(replicas) != factor:
        return f"partition {index} has another replication factor than the {factor} of the others."
    return None


def _wrong_assignment(problem: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment is wrong: {problem}"
    )
