"""Brokers that lack one rule of the replication each: as `mutants`, with several replicas of each partition.

`python -m tests.simulation.replica_mutants NAME` counts the seeds that find the lack, with three replicas.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.simulation import replica_scenarios
from tests.simulation.mutants import Mutant, main
from tests.simulation.scenarios import Scenario, Stage
from tests.simulation.world import Shape
from tidelog.broker.cluster import membership
from tidelog.broker.handlers import fetch
from tidelog.broker.replicas.in_sync_sets import InSyncSets
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.progress import Progress
from tidelog.broker.replicas.replica import Replica

_LACKS: Final = "was committed"
"""What the checker says of a member that lacks what is committed, or has another batch there."""
HUNT: Final = Shape(replicas=3, settle_s=60, stops_at_finding=True)


def _counted_at_once(_: Any) -> Any:
    def flushed(self: Replica) -> asyncio.Future[None]:
        self.log.flushed_end_offset = self.log.end_offset
        done = self._loop.create_future()
        done.set_result(None)
        return done

    return flushed


def _with_any_number(_: Any) -> Any:
    def tell(self: Leadership, progress: Progress, least: int) -> None:
        progress.set_in_sync(self._others, self._joining, 1)

    return tell


def _without_joining(_: Any) -> Any:
    def tell(self: Leadership, progress: Progress, least: int) -> None:
        progress.set_in_sync(self._others, (), 1 << 31 if self.assigned.elr else least)

    return tell


def _whoever_is_eligible(_: Any) -> Any:
    def tell(self: Leadership, progress: Progress, least: int) -> None:
        progress.set_in_sync(self._others, self._joining, least)

    return tell


def _left_at_once(leaving: Any) -> Any:
    async def changed(self: InSyncSets) -> Any:
        found = await leaving(self)
        for each in found:
            assigned = each.leadership.assigned
            isr = tuple(member for member in assigned.isr if member not in each.change.leaving)
            each.replica.set_assigned(assigned._replace(isr=isr))
        return found

    return changed


def _by_written_end(advance: Any) -> Any:
    def changed(self: Progress) -> None:
        flushed = self.flushed.offset
        if self._members:
            self.flushed.offset = max(flushed, self._limit)
        advance(self)
        self.flushed.offset = flushed

    return changed


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _never(_: Any) -> Any:
    return lambda *_: False


def _played(steps: Callable[[Stage], Coroutine[Any, Any, None]]) -> Scenario:
    return Scenario(steps, brokers=2, replicas=2)


MUTANTS: Final = {
    "written": Mutant(
        "a follower asks from what it has on disk",
        ((Replica, "flushed_as_follower", _counted_at_once),),
        _LACKS,
        _played(replica_scenarios.follower_loses_what_it_has_not_flushed),
    ),
    "least": Mutant(
        "with fewer than min.insync.replicas nothing is committed",
        ((Leadership, "tell", _with_any_number),),
        _LACKS,
        _played(replica_scenarios.leader_is_left_with_fewer_than_have_to_be_in_sync),
    ),
    "eligible": Mutant(
        "nothing is committed while a replica is eligible to lead that is not in sync",
        ((Leadership, "tell", _whoever_is_eligible),),
        _LACKS,
        _played(replica_scenarios.fewer_have_to_be_in_sync_while_a_replica_is_eligible),
    ),
    "joining": Mutant(
        "who is being added to the in-sync set counts",
        ((Leadership, "tell", _without_joining),),
        _LACKS,
        _played(replica_scenarios.follower_joins_and_its_leader_does_not_hear_of_it),
    ),
    "leaving": Mutant(
        "who leaves the in-sync set counts until that is stored",
        ((InSyncSets, "_leaving", _left_at_once),),
        _LACKS,
        _played(replica_scenarios.follower_is_late_and_the_store_does_not_hear_of_it),
    ),
    "diverging": Mutant(
        "a follower cuts back what its leader does not have",
        ((fetch, "_diverging", _nothing),),
        _LACKS,
        _played(replica_scenarios.leader_comes_back_with_what_nobody_else_has),
    ),
    "lost disk": Mutant(
        "a broker with another disk leaves the in-sync sets",
        ((membership, "is_other_folder", _never),),
        "starts with another disk, or an older one",
        _played(replica_scenarios.follower_starts_with_an_empty_disk),
    ),
    "leader's disk": Mutant(
        "what is committed is on the leader's disk too",
        ((Progress, "_advance", _by_written_end),),
        _LACKS,
        _played(replica_scenarios.leader_loses_what_it_has_not_flushed),
    ),
}


if __name__ == "__main__":
    main(sys.argv[1:], MUTANTS, HUNT)
