"""Containers that are killed, restarted, stopped, hung or replaced while an idempotent producer writes: each
record is stored once, and the health says what holds.

`make container` runs it; it needs a container engine.
"""

import asyncio
import time
from pathlib import Path

import pytest

from tests.container.containers import Container, container, new_volume
from tests.container.engine import docker
from tests.container.images import broker_image, image_of
from tests.container.load import load
from tests.waiting import wait_for
from tidelog import Admin, Consumer, Producer
from tidelog.client import NewTopic
from tidelog.client.errors import DeliveryError

_KILLED = 137
# The first commit whose formats this release reads.
_EARLIER = "21f76452"
_MORE_THAN_FIT = 100


@pytest.fixture
def image() -> str:
    return broker_image()


def killed(broker: Container) -> None:
    docker("kill", broker.name)
    assert broker.wait_for_end() == _KILLED
    docker("start", broker.name)


def restarted(broker: Container) -> None:
    docker("restart", broker.name)


def stopped(broker: Container) -> None:
    began = time.monotonic()
    docker("stop", broker.name)
    assert broker.inspect(".State.ExitCode") == "0"
    assert time.monotonic() - began < 10, "the engine has killed it"
    assert [event["event"] for event in broker.events()][-1] == "broker_stopped"
    docker("start", broker.name)


@pytest.mark.parametrize("fault", [killed, restarted, stopped])
async def test_each_record_is_stored_once(image: str, fault: object) -> None:
    assert callable(fault)
    with container(image) as broker:
        async with load(broker.bootstrap_servers) as writer:
            for _ in range(3):
                await asyncio.to_thread(fault, broker)
                await asyncio.to_thread(broker.wait_until_ready)
                await writer.acknowledge_more()


async def test_a_new_container_goes_on_where_the_old_one_ended(image: str) -> None:
    with new_volume() as volume, container(image, volume=volume) as broker:
        async with load(broker.bootstrap_servers) as writer:
            docker("rm", "--force", broker.name)
            broker.start(environment={})
            await asyncio.to_thread(broker.wait_until_ready)
            await writer.acknowledge_more()


async def test_an_image_of_an_earlier_commit_is_replaced_over_its_volume(image: str, tmp_path: Path) -> None:
    with container(image_of(_EARLIER, tmp_path)) as broker:
        async with load(broker.bootstrap_servers) as writer:
            await asyncio.to_thread(docker, "stop", broker.name)
            docker("rm", broker.name)
            broker.replace_image(image)
            await asyncio.to_thread(broker.wait_until_ready)
            await writer.acknowledge_more()


async def test_a_broker_that_recovers_is_starting_and_then_healthy(image: str) -> None:
    with container(image) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("many", num_partitions=1000)])
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = [await producer.send("many", b"v", partition=each) for each in range(1000)]
            await asyncio.gather(*sent)
        docker("kill", broker.name)
        docker("start", broker.name)
        seen = [broker.health()]
        while seen[-1] != "healthy":
            seen.append(broker.health())
        assert set(seen) == {"starting", "healthy"}
        async with Consumer(
            "many", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            partitions = {(await consumer.getone()).partition for _ in range(1000)}
        assert len(partitions) == 1000


async def test_a_broker_that_hangs_becomes_unhealthy_until_it_goes_on(image: str) -> None:
    with container(image) as broker:
        broker.wait_for_health("healthy")
        docker("kill", "--signal", "STOP", broker.name)
        broker.wait_for_health("unhealthy")
        docker("kill", "--signal", "CONT", broker.name)
        broker.wait_for_health("healthy")


async def test_a_full_disk_stays_healthy_and_continues_when_there_is_space(image: str) -> None:
    options = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=24m,uid=10001")
    with new_volume(*options) as volume, container(image, volume=volume) as broker:
        async with (
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
            Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=3000) as producer,
        ):
            await admin.create_topics([NewTopic("large"), NewTopic("small")])
            sent = [await producer.send("large", bytes(500_000)) for _ in range(_MORE_THAN_FIT)]
            results = await asyncio.gather(*sent, return_exceptions=True)
            assert any(isinstance(result, DeliveryError) for result in results)
            broker.wait_for_health("healthy")
            assert broker.exec("tidelog", "topic", "list").split() == ["large", "small"]
            await admin.delete_topics(["large"])
            wait_for(lambda: broker.answers("/readyz") == 200, "a broker that is ready", 10)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("small", b"fits")
