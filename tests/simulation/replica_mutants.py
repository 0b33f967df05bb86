"""Brokers that lack one rule of the replication each: as `mutants`, with several replicas of each partition.

`python -m tests.simulation.replica_mutants NAME` counts the seeds that find the lack, with three replicas.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.simulation import replica_scenarios
from tests.simulation.mutants import Mutant, main, never, nothing
from tests.simulation.scenarios import Scenario, Stage
from tests.simulation.world import Shape
from tidelog.broker.cluster import controller, membership, reassignment
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.handlers import fetch, fetch_reading, fetch_sessions
from tidelog.broker.replicas import topics
from tidelog.broker.replicas.in_sync_sets import InSyncSets
from tidelog.broker.replicas.leadership import Leadership
from tidelog.broker.replicas.progress import Progress
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage import manager
from tidelog.broker.storage.log_types import READ_WRITTEN
from tidelog.broker.storage.producer_table import ProducerTable
from tidelog.protocol.hot import FetchPartitionResult

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


def _from_written_end(_: Any) -> Any:
    return property(lambda self: self.log.end_offset)


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


def _in_the_same_epoch(elected_without: Any) -> Any:
    def changed(assigned: PartitionAssignment, *arguments: Any) -> PartitionAssignment:
        now: PartitionAssignment = elected_without(assigned, *arguments)
        is_new_epoch = now.leader_id != assigned.leader_id
        return now._replace(leader_epoch=assigned.leader_epoch + is_new_epoch)

    return changed


def _whoever_is_added(is_reassigned: Any) -> Any:
    return lambda assigned, live, least: is_reassigned(assigned._replace(adding=()), live, least)


def _all_that_is_written(_: Any) -> Any:
    return lambda _: READ_WRITTEN


def _without_producers(decode: Any) -> Any:
    def changed(snapshot: bytes) -> Any:
        return decode(snapshot)[0], ProducerTable().freeze()

    return changed


def _as_placed(_: Any) -> Any:
    return lambda partitions, *_: partitions


def _once(news: Any) -> Any:
    def changed(self: fetch_sessions._Told, result: FetchPartitionResult, has_records: bool) -> bool:
        respond: bool = news(self, result, has_records)
        self.high_watermark = result.high_watermark
        return respond

    return changed


def _nobody(_: Any) -> Any:
    return lambda _: frozenset()


def _false(_: Any) -> Any:
    return property(lambda _: False)


def _played(steps: Callable[[Stage], Coroutine[Any, Any, None]]) -> Scenario:
    return Scenario(steps, brokers=2, replicas=2)


MUTANTS: Final = {
    "written": Mutant(
        "a follower asks from what it has on disk",
        ((Replica, "flushed_as_follower", _counted_at_once),),
        _LACKS,
        _played(replica_scenarios.follower_loses_what_it_has_not_flushed),
    ),
    "written behind": Mutant(
        "a follower asks from what it has on disk, unless its leader has committed more than it has written",
        ((Replica, "fetch_offset", _from_written_end),),
        _LACKS,
        _played(replica_scenarios.follower_that_comes_back_loses_what_it_has_not_flushed),
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
        ((fetch, "diverging", nothing), (fetch_reading, "diverging", nothing)),
        _LACKS,
        _played(replica_scenarios.leader_comes_back_with_what_nobody_else_has),
    ),
    "lost disk": Mutant(
        "a broker with another disk leaves the in-sync sets",
        ((membership, "is_other_folder", never),),
        "starts with another disk, or an older one",
        _played(replica_scenarios.follower_starts_with_an_empty_disk),
    ),
    "new partitions": Mutant(
        "who is fenced when a partition is stored is not in sync",
        ((topics, "led_by_live", _as_placed),),
        "starts with another disk, or an older one",
        _played(replica_scenarios.topic_is_made_while_a_broker_starts_with_an_empty_disk),
    ),
    "removed": Mutant(
        "a partition that loses a replica is led in a new epoch",
        (
            (reassignment, "elected_without", _in_the_same_epoch),
            (controller, "elected_without", _in_the_same_epoch),
        ),
        _LACKS,
        Scenario(
            replica_scenarios.replica_is_added_again_before_its_leader_hears_that_it_went,
            brokers=3,
            replicas=2,
        ),
    ),
    "added": Mutant(
        "a reassignment ends when all that it adds are in sync",
        ((controller, "_is_reassigned", _whoever_is_added),),
        "is reassigned before all are in sync",
        Scenario(replica_scenarios.added_replica_hears_nothing_of_its_leader, brokers=3, replicas=2),
    ),
    "readable": Mutant(
        "consumers read what is committed, at a follower too",
        ((fetch, "level_of", _all_that_is_written), (fetch_reading, "level_of", _all_that_is_written)),
        "a record is read that is not committed",
        Scenario(replica_scenarios.follower_has_what_is_not_committed, brokers=2, replicas=2, has_racks=True),
    ),
    "told": Mutant(
        "a follower that cuts back is told again what is committed",
        ((fetch_sessions._Told, "news", _once),),
        "replicas do not become equal",
        _played(replica_scenarios.follower_cuts_back_what_nobody_else_has),
    ),
    "producers": Mutant(
        "a follower that begins anew gets its leader's producers",
        ((manager, "decode_snapshot", _without_producers),),
        "producers differ",
        _played(replica_scenarios.follower_begins_anew),
    ),
    "stopping": Mutant(
        "brokers that stop at once leave one after the other",
        ((membership, "stopping_brokers", _nobody),),
        "fewer in sync than have to be",
        Scenario(
            replica_scenarios.two_brokers_stop_at_once_while_the_third_catches_up, brokers=3, replicas=3
        ),
    ),
    "waiting": Mutant(
        "a broker that stops waits for no followers, which cannot ask it any more",
        ((Progress, "needs_others", _false),),
        "a broker that stops waits for others for ever",
        _played(replica_scenarios.coordinator_stops_before_what_it_replays_is_copied),
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
