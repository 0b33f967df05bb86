"""The profile `cluster`: one command starts three brokers over three members of etcd, any broker may die, and
`make upgrade` replaces them one by one.

etcd and Prometheus are those of Debian, as their images may not be had. `make container` runs it; it needs a
container engine.
"""

import asyncio
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.container.compose import Compose, project
from tests.container.engine import docker
from tests.container.images import broker_image, debian_image
from tests.container.up import Prometheus, shortened
from tests.deadline import deadline
from tests.ports import free_port
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog import Admin, Consumer, Producer
from tidelog.client import NewTopic

_SECONDS = 3600.0
_NUMBERS = (1, 2, 3)
_BROKERS = [f"broker-{number}" for number in _NUMBERS]

_QUOTA_BYTES = 32 << 20
_FILL = """
import base64, json, urllib.error, urllib.request
value = base64.b64encode(bytes(1 << 20)).decode()
for number in range(100):
    key = base64.b64encode(b"%d" % number).decode()
    body = json.dumps({"key": key, "value": value}).encode()
    try:
        urllib.request.urlopen(urllib.request.Request("http://etcd-1:2379/v3/kv/put", body))
    except urllib.error.HTTPError as error:
        print(error.read().decode())
        break
"""


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Compose, str, int]]:
    """The project, the addresses of its brokers, and the port of its Prometheus."""
    ports = {number: free_port() for number in _NUMBERS}
    prometheus_port = free_port()
    images = [
        debian_image(name, packages, folder)
        for name, packages in (("etcd", "etcd-server"), ("prometheus", "prometheus"))
    ]
    override = folder / "override.yml"
    override.write_text(
        "services:\n"
        + "".join(_services(number, ports[number], images[0]) for number in _NUMBERS)
        + f"""
  prometheus-cluster:
    image: {images[1]}
    entrypoint: [prometheus]
    ports: !override
      - 127.0.0.1:{prometheus_port}:9090
    volumes: !override
      - {shortened(folder / "prometheus")}:/etc/prometheus:ro
"""
    )
    files = (ROOT / "docker-compose.yml", override)
    with (
        deadline("three brokers in containers", _SECONDS),
        project(*files, folder=folder) as compose,
    ):
        compose("--profile", "cluster", "up", "--no-build", "--detach", "--wait", *_BROKERS)
        yield compose, ",".join(f"localhost:{port}" for port in ports.values()), prometheus_port


async def test_three_brokers_keep_three_replicas_and_one_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as (compose, address, _):
        async with Admin(bootstrap_servers=address) as admin, Producer(bootstrap_servers=address) as producer:
            await admin.create_topics([NewTopic("orders", len(_NUMBERS))])
            before = [await producer.send_and_wait("orders", b"before", partition=each) for each in range(3)]
            [topic] = await admin.describe_topics(["orders"])
            assert [len(partition.replicas) for partition in topic.partitions] == [3, 3, 3]
            docker("kill", compose("ps", "--quiet", f"broker-{topic.partitions[0].leader}").strip())
            after = [await producer.send_and_wait("orders", b"after", partition=each) for each in range(3)]
        assert [stored.offset for stored in (*before, *after)] == [0, 0, 0, 1, 1, 1]
        async with Consumer("orders", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            values = [(await consumer.getone()).value for _ in range(6)]
        assert sorted(filter(None, values)) == [b"after"] * 3 + [b"before"] * 3


async def test_an_upgrade_replaces_one_broker_after_the_other_while_a_producer_writes(tmp_path: Path) -> None:
    with cluster(tmp_path) as (compose, address, prometheus_port):
        compose("--profile", "cluster", "up", "--no-build", "--detach", "prometheus-cluster")
        before = _containers(compose)
        # As a new image does, another environment makes each container a new one.
        override = tmp_path / "override.yml"
        override.write_text(
            override.read_text().replace("      TIDELOG_ADV", "      TZ: UTC\n      TIDELOG_ADV")
        )
        command = ["make", "upgrade", f"COMPOSE={shlex.join(compose.command())}", "BUILD=--no-build"]
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topics([NewTopic("orders", len(_NUMBERS))])
        async with Producer(bootstrap_servers=address) as producer:
            upgrade = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
            ended = asyncio.create_task(upgrade.communicate())
            offsets = []
            while not ended.done():
                offsets.append((await producer.send_and_wait("orders", b"order", partition=0)).offset)
            told, _ = await ended
        assert upgrade.returncode == 0, told
        assert offsets == list(range(len(offsets)))
        after = _containers(compose)
        assert not before.keys() & after.keys()
        assert [name for _, name in sorted((began, name) for name, began in after.values())] == _BROKERS
        scraped = Prometheus(prometheus_port)
        wait_for(lambda: scraped.values("up") == [1.0] * 3, "three brokers", DEADLINE_SECONDS)


async def test_what_a_cluster_loses_fires_an_alert_each(tmp_path: Path) -> None:
    with cluster(tmp_path) as (compose, address, prometheus_port):
        compose("--profile", "cluster", "up", "--no-build", "--detach", "prometheus-cluster")
        prometheus = Prometheus(prometheus_port)
        wait_for(lambda: prometheus.values("up") == [1.0] * 3, "three brokers", DEADLINE_SECONDS)
        assert prometheus.firing() == set()
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topics([NewTopic("orders", 3), NewTopic("single", 3, 1)])

        def lose(service: str, *alerts: str) -> None:
            docker("kill", compose("--profile", "cluster", "ps", "--quiet", service).strip())
            wait_for(lambda: set(alerts) <= prometheus.firing(), f"{alerts} without {service}", 120)

        lose("etcd-1", "TidelogStoreMemberDown")
        lose("broker-3", "TidelogDown", "TidelogReplicasOutOfSync", "TidelogPartitionsWithoutLeader")
        lose("broker-2", "TidelogTooFewInSync")
        compose("--profile", "cluster", "stop", "etcd-2", "etcd-3")
        compose("--profile", "cluster", "rm", "--force", "etcd-1", "etcd-2", "etcd-3")
        for number in _NUMBERS:
            docker("volume", "rm", f"{compose.project}_etcd-{number}-data")
        etcd = [f"etcd-{number}" for number in _NUMBERS]
        compose("--profile", "cluster", "up", "--no-build", "--detach", *etcd)
        wait_for(lambda: "TidelogCatalogLost" in prometheus.firing(), "a lost catalog", 120)
        told = compose("--profile", "cluster", "exec", "-T", "broker-1", "python", "-", given=_FILL)
        assert "exceeded" in told
        full = {"TidelogStoreNearlyFull", "TidelogStoreAlarm"}
        wait_for(lambda: full <= prometheus.firing(), "a full store", 120)


def _containers(compose: Compose) -> dict[str, tuple[str, str]]:
    """Id of each broker's container -> the broker, and when it was created."""
    found = {}
    for broker in _BROKERS:
        name = compose("--profile", "cluster", "ps", "--quiet", broker).strip()
        found[name] = (broker, docker("inspect", "--format", "{{.Created}}", name).stdout.strip())
    return found


def _services(number: int, port: int, etcd: str) -> str:
    return f"""
  etcd-{number}:
    image: {etcd}
    entrypoint: [etcd]
    environment: {{ETCD_QUOTA_BACKEND_BYTES: "{_QUOTA_BYTES}"}}
  broker-{number}:
    image: {broker_image()}
    environment:
      TIDELOG_ADVERTISED_LISTENERS: OUTSIDE://localhost:{port},INSIDE://broker-{number}:29092
    ports: !override
      - 127.0.0.1:{port}:9092
"""
