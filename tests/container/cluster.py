"""The profile `cluster`: one command starts three brokers over three members of etcd, and any broker may die.

etcd is Debian's, as its image may not be had. `make container` runs it; it needs a container engine.
"""

from pathlib import Path

from tests.container.compose import project
from tests.container.engine import docker
from tests.container.images import broker_image, debian_image
from tests.deadline import deadline
from tests.ports import free_port
from tests.tidy.house import ROOT
from tidelog import Admin, Consumer, Producer
from tidelog.client import NewTopic

_SECONDS = 3600.0
_NUMBERS = (1, 2, 3)


async def test_three_brokers_keep_three_replicas_and_one_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    ports = {number: free_port() for number in _NUMBERS}
    etcd = debian_image("etcd", "etcd-server", tmp_path)
    override = tmp_path / "override.yml"
    override.write_text(
        "services:\n" + "".join(_services(number, ports[number], etcd) for number in _NUMBERS)
    )
    files = (ROOT / "docker-compose.yml", override)
    brokers = [f"broker-{number}" for number in _NUMBERS]
    with (
        deadline("three brokers in containers", _SECONDS),
        project(*files, folder=tmp_path, profile="cluster") as compose,
    ):
        compose("--profile", "cluster", "up", "--no-build", "--detach", "--wait", *brokers)
        address = ",".join(f"localhost:{port}" for port in ports.values())
        async with Admin(bootstrap_servers=address) as admin, Producer(bootstrap_servers=address) as producer:
            await admin.create_topics([NewTopic("orders", len(_NUMBERS))])
            [topic] = await admin.describe_topics(["orders"])
            assert [len(partition.replicas) for partition in topic.partitions] == [3, 3, 3]
            before = [await producer.send_and_wait("orders", b"before", partition=each) for each in range(3)]
            docker("kill", compose("ps", "--quiet", f"broker-{topic.partitions[0].leader}").strip())
            after = [await producer.send_and_wait("orders", b"after", partition=each) for each in range(3)]
        assert [stored.offset for stored in (*before, *after)] == [0, 0, 0, 1, 1, 1]
        async with Consumer("orders", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            values = [(await consumer.getone()).value for _ in range(6)]
        assert sorted(filter(None, values)) == [b"after"] * 3 + [b"before"] * 3


def _services(number: int, port: int, etcd: str) -> str:
    return f"""
  etcd-{number}:
    image: {etcd}
    entrypoint: [etcd]
  broker-{number}:
    image: {broker_image()}
    environment:
      TIDELOG_ADVERTISED_LISTENERS: OUTSIDE://localhost:{port},INSIDE://broker-{number}:29092
    ports: !override
      - 127.0.0.1:{port}:9092
"""
