"""Which brokers partitions are moved to.

Owns the spreading: each broker gets as many replicas as the others, or one more; what is on one of them stays
there where that allows it; the replicas of a partition are in as many racks as possible; then each broker is
the first replica of as many partitions as the others, or one more, where its replicas allow it.

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
    share = -(-sum(counts.values()) // len(brokers))
    load = Counter(dict.fromkeys(brokers, 0))
    kept: dict[K, list[int]] = {}
    for key, replicas in present.items():
        kept[key] = []
        for each in replicas:
            chosen = kept[key]
            is_apart = racks.get(each) is None or racks[each] not in {racks.get(other) for other in chosen}
            if each in load and load[each] < share and len(chosen) < counts[key] and is_apart:
                chosen.append(each)
                load[each] += 1
    for key, chosen in kept.items():
        while len(chosen) < counts[key]:
            used = Counter(racks.get(each) or each for each in chosen)
            left = (each for each in brokers if each not in chosen)
            best = min(left, key=lambda each: (used[racks.get(each) or each], load[each], each))
            chosen.append(best)
            load[best] += 1
    leads: Counter[int] = Counter()
    for chosen in kept.values():
        first = min(chosen, key=lambda each: (leads[each], chosen.index(each)))
        leads[first] += 1
        chosen.remove(first)
        chosen.insert(0, first)
    return kept
