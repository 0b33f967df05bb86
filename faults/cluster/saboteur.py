"""The faults of several machines: what is lost between them, their disks and their clocks.

Owns what is lost where. Invariant: a broker loses its disk only when all replicas are in sync, so two disks
have each record.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from faults.cluster.site import METADATA_VERSION, ClusterSite, Machine, ask
from faults.honest_disk import step_clock
from faults.process import BrokerProcessError
from faults.saboteur import Saboteur
from faults.schedule import FaultKind, Step
from faults.site import Node, Site
from tidelog.protocol.schema import ApiKey

_LARGEST_STEP_MS: Final = 3_600_000
_PREFERRED: Final = 0
_ELECT_VERSION: Final = 2


def saboteur_of(site: Site) -> Saboteur:
    """The one that knows what this site has."""
    return ClusterSaboteur(site) if isinstance(site, ClusterSite) else Saboteur(site)


class ClusterSaboteur(Saboteur):
    """Carries out the faults of a `ClusterSite`: also those of its network, disks and clocks."""

    def __init__(self, site: ClusterSite) -> None:
        super().__init__(site)
        self._cluster = site
        lost = (
            FaultKind.CUT_OFF,
            FaultKind.LOSE_PEERS,
            FaultKind.LOSE_CLIENTS,
            FaultKind.LOSE_ALL,
            FaultKind.DEAF,
            FaultKind.MUTED,
            FaultKind.ONE_WAY,
            FaultKind.LOSSY,
        )
        self._of_broker |= dict.fromkeys(lost, self._lose)
        self._of_broker |= {
            FaultKind.FULL_DISK: self._break_disk,
            FaultKind.FAILING_DISK: self._break_disk,
            FaultKind.EMPTY_DISK: self._replace_disk,
            FaultKind.STEP_CLOCK: self._step_clock,
            FaultKind.ELECT: self._elect,
            FaultKind.REASSIGN: self._reassign,
        }
        self._beside = frozenset((self._lose, self._step_clock, self._elect, self._reassign))

    async def carry_out(self, step: Step) -> None:
        if step.kind is FaultKind.EMPTY_DISK:
            await self._ended()
            try:
                await self._cluster.settle()
            except TimeoutError:
                raise BrokerProcessError("not all replicas are in sync long after the last fault") from None
        await super().carry_out(step)

    async def heal(self) -> None:
        try:
            await super().heal()
        finally:
            for machine in self._cluster.machines:
                step_clock(machine.journal, 0)

    async def _lose(self, node: Node, step: Step) -> None:
        network, number = self._cluster.network, cast(Machine, node).number
        arriving, leaving = self._lost(cast(Machine, node), step)
        percent = 5 + int(step.draw * 35) if step.kind is FaultKind.LOSSY else 100
        await network.lose(number, arriving=arriving, leaving=leaving, percent=percent)
        try:
            await asyncio.sleep(step.duration_ms / 1000)
        finally:
            await network.lose(number)

    def _lost(self, machine: Machine, step: Step) -> tuple[Sequence[str], Sequence[str]]:
        """The addresses from which nothing arrives, and to which nothing leaves."""
        members = self._cluster.member_addresses
        clients = [self._cluster.network.clients]
        peers = [each.broker.host for each in self._cluster.machines if each is not machine]
        everybody = members + clients + peers
        match step.kind:
            case FaultKind.CUT_OFF:
                return members, members
            case FaultKind.LOSE_PEERS:
                return peers, peers
            case FaultKind.LOSE_CLIENTS:
                return clients, clients
            case FaultKind.DEAF:
                return everybody, ()
            case FaultKind.MUTED:
                return (), everybody
            case FaultKind.ONE_WAY:
                return [step.pick(peers)], ()
            case _:
                return everybody, everybody

    async def _break_disk(self, node: Node, step: Step) -> None:
        disk = cast(Machine, node).disk
        if step.kind is FaultKind.FULL_DISK:
            await asyncio.to_thread(disk.fill)
        else:
            await asyncio.to_thread(disk.fail)
        await asyncio.sleep(step.duration_ms / 1000)
        if step.kind is FaultKind.FULL_DISK:
            disk.empty()
        else:
            await asyncio.to_thread(disk.go_on)
        await node.broker.kill_9()
        if step.kind is FaultKind.FAILING_DISK:
            await disk.repair()
        await self._start(node)

    async def _replace_disk(self, node: Node, _: Step) -> None:
        await node.broker.kill_9()
        await cast(Machine, node).disk.replace()
        node.journal.unlink(missing_ok=True)
        await self._start(node)

    async def _step_clock(self, node: Node, step: Step) -> None:
        step_clock(node.journal, int((2 * step.draw - 1) * _LARGEST_STEP_MS))

    async def _elect(self, node: Node, _: Step) -> None:
        # A broker that is cut off does not answer.
        with suppress(OSError, EOFError):
            wanted = {"election_type": _PREFERRED, "topic_partitions": None, "timeout_ms": 1000}
            await ask(node.broker, ApiKey.ELECT_LEADERS, _ELECT_VERSION, wanted)

    async def _reassign(self, node: Node, step: Step) -> None:
        """Any partition, also of an internal topic. The broker deletes its replica, and gets it anew, unless
        the partition is given back before it was taken. Then it is the preferred leader."""
        number = cast(Machine, node).number
        others = [each.number for each in self._cluster.machines if each is not node]
        try:
            metadata = await ask(node.broker, ApiKey.METADATA, METADATA_VERSION, {"topics": None})
        except (OSError, EOFError):
            return
        partition = step.pick(
            [(each.name, index) for each in metadata.topics for index in range(len(each.partitions))]
        )
        await self._cluster.reassign(*partition, others)
        await asyncio.sleep(step.duration_ms / 1000)
        await self._cluster.reassign(*partition, [number, *others])
