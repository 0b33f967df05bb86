"""Clients of four projects through each kind of failover, over real brokers and a real etcd.

`make cluster` runs it: it takes minutes. Applications with their clients' defaults must get no error, and
nothing may be lost, stored twice or reordered. kafka-python takes no part where a port refuses it: it loses
the end of a transaction for ever then. Others wait for a broker that hangs longer than their own limits allow
(docs/cluster.md).
"""

import asyncio

import pytest

from tests.deadline import deadline
from tests.several.applications import CLIENTS, PROGRAMS, Programs, applications, make_topics
from tests.several.operations import SECONDS, THOSE_THAT_SURVIVE_KILLS, Machines, machines
from tidelog.client import Admin

__all__ = ["machines"]
KILL, PAUSE, PREFERRED = "kill -9", "SIGSTOP", "SIGTERM and a preferred election"
KINDS = (KILL, PAUSE, PREFERRED)
CLIENTS_THROUGH = {KILL: THOSE_THAT_SURVIVE_KILLS, PAUSE: ("tidelog",), PREFERRED: CLIENTS}


async def all_know(addresses: list[str], count: int) -> None:
    """Return when each of these brokers knows that so many live."""
    for address in addresses:
        async with Admin(bootstrap_servers=address) as admin:
            while len((await admin.describe_cluster()).brokers) < count:  # noqa: ASYNC110 (it is not signalled)
                await asyncio.sleep(0.1)


async def leads(address: str, broker: int) -> bool:
    async with Admin(bootstrap_servers=address) as admin:
        topics = await admin.describe_topics()
    return any(each.leader == broker for topic in topics for each in topic.partitions)


async def fail_over(
    machines: Machines, kind: str, clients: tuple[str, ...], programs: Programs = PROGRAMS
) -> None:
    """Each broker in turn, while these clients work."""
    for broker in machines.broker.values():
        broker.settings["min.insync.replicas"] = 2
    address = await machines.start(1, 2, 3)
    await all_know(machines.addresses(), 3)
    await make_topics(address, clients, 3)
    with deadline(f"the failovers by {kind}", SECONDS), applications(address, clients, programs) as running:
        await running.go_on(3)
        for number in (1, 2, 3):
            broker = machines.broker[number]
            if kind == KILL:
                await broker.kill_9()
                await running.go_on(3)
                await broker.start()
            elif kind == PAUSE:
                broker.pause()
                await running.go_on(3)
                broker.resume()
            else:
                await broker.terminate()
                await broker.start()
                # The others led its partitions; it is elected again while all live.
                while not await leads(address, number):
                    await running.go_on(1)
            await running.go_on(3)
        await running.end(address)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_client_gets_an_error_and_nothing_is_lost_doubled_or_reordered(
    machines: Machines, kind: str
) -> None:
    await fail_over(machines, kind, CLIENTS_THROUGH[kind])
