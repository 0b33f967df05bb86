"""Which brokers partitions are moved to.

Owns the spreading: what is on one of the wanted brokers stays there; the replicas of a partition are in as
many racks as possible; then those of brokers that have more than others are moved, until each has as many as
the others, or one more, as far as the racks allow it. Each broker is the first replica of about as many.

Pure.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def spread(
    present: Mapping[K, Sequence[int]],
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    factor: int | None = None,
) -> dict[K, list[int]]:
    """Partition -> its replicas from now on, the preferred leader first; `factor` None keeps their number.

    Raises ValueError for more replicas than brokers.
    """
    counts = {key: factor or len(replicas) for key, replicas in present.items()}
    if (most := max(counts.values(), default=0)) > len(brokers):
        raise ValueError(f"{most} replicas need as many brokers, and there are {len(brokers)}")
    load = Counter(dict.fromkeys(brokers, 0))
    moved: dict[K, list[int]] = {}
    for key, replicas in present.items():
        chosen = moved[key] = []
        for each in replicas:
            if each in load and len(chosen) < counts[key] and _is_apart(each, chosen, racks):
                chosen.append(each)
                load[each] += 1
    for key, chosen in moved.items():
        while len(chosen) < counts[key]:
            left = (each for each in brokers if each not in chosen)
            best = min(left, key=lambda each: (not _is_apart(each, chosen, racks), load[each], each))
            chosen.append(best)
            load[best] += 1
    while sum(_evened(chosen, load, racks) for chosen in moved.values()):
        pass
    leads: Counter[int] = Counter()
    for chosen in moved.values():
        first = min(chosen, key=lambda each: (leads[each], chosen.index(each)))
        leads[first] += 1
        chosen.remove(first)
        chosen.insert(0, first)
    return moved


def _is_apart(broker: int, others: Sequence[int], racks: Mapping[int, str | None]) -> bool:
    """Whether a broker is in another rack than each of the others; one without a rack has its own."""
    rack = racks.get(broker)
    return rack is None or all(racks.get(each) != rack for each in others)


def _evened(chosen: list[int], load: Counter[int], racks: Mapping[int, str | None]) -> bool:
    """Whether a replica of a partition was moved to a broker that has at least two less."""
    for at, each in enumerate(chosen):
        others = [*chosen[:at], *chosen[at + 1 :]]
        was_apart = _is_apart(each, others, racks)
        free = (
            other
            for other in load
            if other not in chosen and (not was_apart or _is_apart(other, others, racks))
        )
        best = min(free, key=lambda other: (load[other], other), default=each)
        if load[each] - load[best] > 1:
            chosen[at] = best
            load[each] -= 1
            load[best] += 1
            return True
    return False
