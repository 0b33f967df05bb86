"""Brokers that lack one rule of the design each, and the scenario that finds that.

Owns the table. `python -m tests.simulation.mutants NAME` counts the seeds that find it. A rule is found only
by the checker of what it promises: an alarm or a run that hangs does not count. A rule that no schedule needs
is superfluous, or the simulation is too weak.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast
from unittest.mock import patch
from uuid import UUID

from faults.checker import Finding
from tests.simulation import scenarios
from tests.simulation.scenarios import Scenario
from tests.simulation.transactions import play
from tests.simulation.world import Run, Shape, World
from tidelog.broker.cluster import controller, image_difference, membership
from tidelog.broker.cluster.catalog import NO_LEADER, BrokerRegistered, PartitionAssignment
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_layout import Layout
from tidelog.broker.cluster.etcd_session import EtcdSession, _now_ms
from tidelog.broker.cluster.etcd_store import EtcdStore, _Watch
from tidelog.broker.cluster.membership import Membership
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.shards import Shards
from tidelog.broker.handlers import cut_off
from tidelog.broker.replicas import leader, ownership
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage import producer_memory, producer_state, refused_batches
from tidelog.broker.storage.log_types import FlushWork
from tidelog.broker.storage.refused_batches import RefusedBatches
from tidelog.protocol.errors import ErrorCode

HUNT: Final = Shape(settle_s=60, stops_at_finding=True)


class Mutant(NamedTuple):
    """`patched`: what to replace: an object, the name of its attribute, what makes the new one of the old."""

    rule: str
    patched: tuple[tuple[object, str, Callable[[Any], Any]], ...]
    finding: str
    """What the checker of this rule says, in part."""
    scenario: Scenario
    """What needs the rule."""


def _with_chosen_lease(call: Any) -> Any:
    numbers = count(1)

    async def changed(self: EtcdClient, path: str, body: Mapping[str, Any], **more: Any) -> Any:
        chosen = {"ID": str(next(numbers))} if path == "/v3/lease/grant" else {}
        return await call(self, path, {**body, **chosen}, **more)

    return changed


def _commit_anyway(commit: Any) -> Any:
    def changed(*arguments: Any) -> Any:
        transaction = commit(*arguments)
        return {**transaction, "compare": transaction["compare"][1:]}

    return changed


def _without_nonce(found: Any) -> Any:
    return lambda *arguments: (found(*arguments)[0], b"")


def _unfenced(_: Any) -> Any:
    async def settle(self: EtcdStore, nonce: UUID, expected_revision: int) -> bool:
        _, last_nonce = await self._read_head()
        return last_nonce == nonce.hex.encode()

    return settle


def _without_last(difference: Any) -> Any:
    def changed(*images: Any) -> Iterator[Any]:
        deltas = list(difference(*images))
        return islice(iter(deltas), max(len(deltas) - 1, 0))

    return changed


def _from_the_answer(_: Any) -> Any:
    async def prolong(self: EtcdSession, session: Any) -> None:
        timeout_s = self._timeout_ms / 4 / 1000
        answer = await self._client.call("/v3/lease/keepalive", {"ID": str(self._lease)}, timeout_s=timeout_s)
        seconds = int(answer["result"].get("TTL", 0))
        if seconds:
            self.valid_until_ms = _now_ms() + seconds * 1000
        else:
            await self._open(session)

    return prolong


def _whatever_session(commit: Any) -> Any:
    return lambda self, head, deltas, node_id, nonce, _: commit(self, head, deltas, node_id, nonce, None)


def _same_epoch(elected: Any) -> Any:
    def changed(assigned: PartitionAssignment, *arguments: Any) -> PartitionAssignment:
        now: PartitionAssignment = elected(assigned, *arguments)
        if now is assigned:
            return now
        return now._replace(leader_epoch=assigned.leader_epoch, partition_epoch=assigned.partition_epoch)

    return changed


def _anyone(elected: Any) -> Any:
    def changed(assigned: PartitionAssignment, live: Any, least: int) -> PartitionAssignment:
        now: PartitionAssignment = elected(assigned, live, least)
        leader_id = next((each for each in assigned.replicas if each in live), NO_LEADER)
        if now.leader_id != NO_LEADER or leader_id == NO_LEADER:
            return now
        epochs = assigned.leader_epoch + 1, assigned.partition_epoch + 1
        return assigned._replace(
            leader_id=leader_id, isr=(leader_id,), leader_epoch=epochs[0], partition_epoch=epochs[1]
        )

    return changed


def _any_disk(_: Any) -> Any:
    return lambda catalog, broker, known, lost: BrokerRegistered(broker)


def _any_copy(registering: Any) -> Any:
    def changed(catalog: Any, broker: Any, known: Any, lost: Any) -> Any:
        before = catalog.brokers.get(broker.node_id)
        return registering(catalog, broker, known if before is None else [before.incarnation], lost)

    return changed


def _note_later(note_start: Any) -> Any:
    def changed(*arguments: Any) -> None:
        _LATER[arguments[-1]] = partial(note_start, *arguments)

    return changed


_LATER: Final[dict[UUID, Callable[[], None]]] = {}


def _register_first(register: Any) -> Any:
    async def changed(self: Membership, *arguments: Any) -> None:
        await register(self, *arguments)
        await asyncio.to_thread(_LATER.pop(self.incarnation))

    return changed


def _at_once(_: Any) -> Any:
    def committed(self: Replica, end_offset: int) -> Any:
        done = self._loop.create_future()
        done.set_result(None)
        return done

    return committed


def _planned_once(reserve: Any) -> Any:
    async def changed(self: ProducerIds) -> None:
        cluster = self._cluster

        def change(plan: Any) -> Any:
            planned = plan(cluster.catalog)
            return cluster.change(lambda _: planned)

        self._cluster = cast(Cluster, SimpleNamespace(change=change))
        try:
            await reserve(self)
        finally:
            self._cluster = cluster

    return changed


def never(_: Any) -> Any:
    return lambda *_: False


def nothing(_: Any) -> Any:
    return lambda *_: None


def _unchecked_coordinator(check: Any) -> Any:
    return lambda sent, marker, known: check(
        sent, marker, None if known is None else known._replace(coordinator_epoch=marker.coordinator_epoch)
    )


def _unrefused(_: Any) -> Any:
    return lambda services, key, handler: handler


MUTANTS: Final = {
    "commit": Mutant(
        "a commit is compared with the newest revision",
        ((Layout, "commit", _commit_anyway),),
        "a commit builds on revision",
        Scenario(scenarios.two_brokers_reserve_at_once, brokers=2),
    ),
    "nonce": Mutant(
        "a commit without an answer is known by its nonce",
        ((EtcdStore, "_head_and_nonce", _without_nonce),),
        "a commit is stored, and its broker was told",
        Scenario(scenarios.answer_of_a_commit_is_lost),
    ),
    "fence": Mutant(
        "what settles a commit keeps it from arriving later",
        ((EtcdStore, "settle", _unfenced),),
        "a commit was stored after its broker was told",
        Scenario(scenarios.commit_arrives_after_it_was_given_up),
    ),
    "reload": Mutant(
        "after a watch that failed, followers get all that has changed",
        ((image_difference, "difference", _without_last),),
        "has another image at revision",
        Scenario(scenarios.journal_is_gone_when_a_broker_comes_back, brokers=2),
    ),
    "guard": Mutant(
        "a watch that stays behind begins anew",
        ((_Watch, "compare", nothing),),
        "a broker stays behind the store",
        Scenario(scenarios.member_that_is_watched_hangs),
    ),
    "lease": Mutant(
        "a lease that is granted late is another one",
        ((EtcdClient, "call", _with_chosen_lease),),
        "has no session and does not know it",
        Scenario(scenarios.lease_is_granted_again_after_it_ended),
    ),
    "clock": Mutant(
        "a session is counted from before its keepalive was sent",
        ((EtcdSession, "_prolong", _from_the_answer),),
        "has no session and does not know it",
        Scenario(scenarios.answer_of_the_last_keepalive_is_late),
    ),
    "session": Mutant(
        "a broker is fenced only without a session",
        ((Layout, "commit", _whatever_session),),
        "which has a session",
        Scenario(scenarios.session_begins_again_before_its_broker_is_fenced, brokers=2),
    ),
    "behind": Mutant(
        "after a session began again, an image from before it does not count",
        ((EtcdStore, "session_revision", lambda _: 0),),
        "is fenced and does not know it",
        Scenario(scenarios.session_begins_again_before_its_broker_learns_that_it_was_fenced, brokers=2),
    ),
    "epoch": Mutant(
        "each start leads in an epoch of its own",
        ((controller, "elected", _same_epoch),),
        "gets another leader in the same epoch",
        Scenario(scenarios.broker_starts_again),
    ),
    "in-sync": Mutant(
        "only an in-sync replica leads",
        ((controller, "elected", _anyone),),
        "gets a leader that is no live in-sync replica",
        Scenario(scenarios.replica_is_alone_that_is_not_in_sync, brokers=2),
    ),
    "disk": Mutant(
        "another disk is refused",
        ((membership, "registering", _any_disk),),
        "starts with another disk, or an older one",
        Scenario(scenarios.broker_starts_with_an_empty_disk),
    ),
    "copy": Mutant(
        "an older copy of the disk is refused",
        ((membership, "registering", _any_copy),),
        "starts with another disk, or an older one",
        Scenario(scenarios.broker_starts_with_an_older_disk),
    ),
    "note": Mutant(
        "the disk knows of a start before the catalog does",
        ((ownership, "note_start", _note_later), (Membership, "register", _register_first)),
        "did not start",
        Scenario(scenarios.broker_dies_as_the_catalog_hears_of_its_start),
    ),
    "marker": Mutant(
        "a marker is answered when it is durable",
        ((Replica, "committed", _at_once),),
        "a transaction is open after its marker was answered",
        Scenario(scenarios.power_is_cut_after_a_marker_was_answered, brokers=2),
    ),
    "coordinator": Mutant(
        "a marker of an earlier coordinator is refused",
        ((producer_memory, "check_marker", _unchecked_coordinator),),
        "a record is visible before its transaction is committed",
        Scenario(scenarios.marker_of_an_earlier_coordinator_arrives, brokers=2, has_epochs=False),
    ),
    "late marker": Mutant(
        "a late marker ends no later transaction",
        ((leader, "is_late", never),),
        "a record is visible before its transaction is committed",
        Scenario(scenarios.marker_arrives_within_the_next_transaction, brokers=2),
    ),
    "ids": Mutant(
        "a block of producer ids is taken from the newest catalog",
        ((ProducerIds, "_reserve", _planned_once),),
        "is given twice",
        Scenario(scenarios.two_brokers_reserve_at_once, brokers=2),
    ),
    "cut off": Mutant(
        "a broker that is cut off coordinates nothing",
        ((cut_off, "refused_while_cut_off", _unrefused),),
        "has no session and answers",
        Scenario(scenarios.coordinator_is_asked_that_has_no_session),
    ),
    "named": Mutant(
        "a broker that is cut off does not name itself as coordinator",
        ((Shards, "_refuse_if_cut_off", nothing),),
        "names itself as coordinator",
        Scenario(scenarios.coordinator_is_looked_for_that_has_no_session),
    ),
    "refused": Mutant(
        "a batch behind refused ones gets their code",
        ((RefusedBatches, "code_before", nothing),),
        "is behind refused batches only",
        Scenario(scenarios.disk_is_full_for_one_batch),
    ),
    "gap": Mutant(
        "a batch behind a gap that was not refused is out of order",
        ((RefusedBatches, "code_before", lambda _: lambda *_: ErrorCode.KAFKA_STORAGE_ERROR),),
        "is behind what was not refused lately",
        Scenario(scenarios.disk_is_full_for_one_batch),
    ),
    "given up": Mutant(
        "a refused batch that is not sent again is forgotten",
        ((refused_batches, "REMEMBERED_MS", lambda before: 1_000 * before),),
        "is behind what was not refused lately",
        Scenario(scenarios.disk_is_full_for_one_batch),
    ),
    "ended": Mutant(
        "a batch of a transaction that has ended is no duplicate of one of the next",
        ((producer_state, "_has_ended", never),),
        "is not stored",
        Scenario(scenarios.transaction_has_the_sequence_of_an_aborted_one, has_epochs=False),
    ),
    "sync": Mutant(
        "what is answered is synced",
        ((FlushWork, "_sync", nothing),),
        "is not stored",
        Scenario(scenarios.power_is_cut_after_an_answer),
    ),
}


@contextmanager
def without(mutant: Mutant) -> Iterator[None]:
    """Brokers lack the rule meanwhile."""
    with ExitStack() as stack:
        for owner, name, make in mutant.patched:
            stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))
        yield


def found_by(mutant: Mutant, runs: Iterable[Callable[[], Run]]) -> Iterator[Finding | None]:
    """For each run without the rule what its checker says, None where it says nothing."""
    with without(mutant):
        for run in runs:
            yield next((each for each in run().findings if mutant.finding in each.text), None)


def main(
    arguments: list[str],
    mutants: Mapping[str, Mutant] = MUTANTS,
    shape: Shape = HUNT,
    world: Callable[..., World] = World,
) -> None:
    """Print for each name how many seeds it takes to find the lack (the median), and at which cost.

    Any finding counts, because unchanged brokers have none: another rule may break first.
    """
    parser = argparse.ArgumentParser(description="Look for seeds that find the lack of a rule.")
    parser.add_argument("names", nargs="*", help="all, if none is given")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200, help="at most (default %(default)d)")
    parser.add_argument("--times", type=int, default=5, help="how often it is found (default %(default)d)")
    options = parser.parse_args(arguments)
    sys.unraisablehook = lambda _: None
    seeds = range(options.first, options.first + options.seeds)
    for name in options.names or mutants:
        began = time.process_time()
        taken: list[int] = []
        played = by_checker = 0
        with without(mutants[name]):
            for played, seed in enumerate(seeds, 1):
                if findings := play(seed, shape, world).findings:
                    taken.append(played - sum(taken))
                    by_checker += any(mutants[name].finding in each.text for each in findings)
                if len(taken) == options.times:
                    break
        seconds = time.process_time() - began
        median = f"{statistics.median(taken):g} seeds" if taken else "not found"
        found = f"found {len(taken)} × in {played} seeds, {by_checker} × by the checker of the rule"
        print(f"{name}: {median}, {found}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
