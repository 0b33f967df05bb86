"""`make up`: broker and Prometheus together, the profile `secure`, and alerts and panels over real faults.

Prometheus is Debian's. Grafana is not started: the queries of its dashboard are run as it would run them.

`make container` runs it; it needs a container engine.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.wire import Wire
from tests.container.compose import Compose, project
from tests.container.containers import Container, container, new_volume
from tests.container.engine import docker
from tests.container.images import base_image, broker_image, debian_image
from tests.deadline import deadline
from tests.ports import free_port
from tests.several.processes import hold_ports_apart
from tests.tidy.house import ROOT
from tests.unit.pipeline.batches import make_batch
from tests.waiting import wait_for
from tidelog import Admin, Consumer, Producer
from tidelog.client import NewTopic
from tidelog.client.errors import ClientError

_PROMETHEUS = ROOT / "deploy" / "prometheus"
_RULES = (_PROMETHEUS / "rules.yml").read_text()
_ALERTS = re.findall(r"- alert: (\w+)", _RULES)
_OF_SEVERAL_BROKERS = {
    "TidelogTooFewInSync",
    "TidelogReplicasOutOfSync",
    "TidelogCatalogLost",
    "TidelogStoreMemberDown",
    "TidelogStoreAlarm",
    "TidelogStoreNearlyFull",
}
"""No fault of one broker makes these fire; `rules_over_processes.yml` has the series that do."""
_DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/tidelog.json").read_text())
_QUERIES = [
    (f"{panel['title']} {target['refId']}", target["expr"])
    for panel in _DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
_TIDELOG = (sys.executable, "-m", "tidelog")
_START_SECONDS = 3600.0
# Its clients are in the container.
_TWO_PROCESSES = {"TIDELOG_PROCESSES": "2", "TIDELOG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"}
_ALIASES = ("full", "failing", "gone", "halved")
_SCRAPED = {"TIDELOG_HTTP_ALLOWED_HOSTS": ",".join(_ALIASES)}
"""Prometheus asks by names that these brokers do not advertise."""
_SETTLE_SECONDS = 120.0


class Prometheus:
    """The HTTP API of a Prometheus on this machine."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1/"

    def _get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self._address}{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """Of each series of an instant query."""
        return [float(each["value"][1]) for each in self._get("query", query=expression)["result"]]

    def firing(self) -> set[str]:
        alerts = self._get("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def rules(self) -> list[str]:
        return [rule["name"] for group in self._get("rules")["groups"] for rule in group["rules"]]


def shortened(folder: Path, *targets: str) -> Path:
    """The configuration of deploy/ with more brokers, and waits of seconds in place of minutes and hours."""
    folder.mkdir()
    rules, waits = re.subn(r"for: \d+[ms]$", "for: 5s", _RULES, flags=re.MULTILINE)
    rules, ages = re.subn(r"_age_seconds > 3600$", "_age_seconds > 5", rules, flags=re.MULTILINE)
    assert (waits, ages) == (_RULES.count(" for: "), 1)
    (folder / "rules.yml").write_text(rules)
    scraped = ", ".join(f"{each}:9644" for each in ("broker", *targets))
    text = (_PROMETHEUS / "prometheus.yml").read_text().replace("[broker:9644]", f"[{scraped}]")
    (folder / "prometheus.yml").write_text(text)
    (folder / "cluster.yml").write_text((_PROMETHEUS / "cluster.yml").read_text())
    return folder


@pytest.fixture(scope="module")
def prometheus_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return debian_image("prometheus", "prometheus", tmp_path_factory.mktemp("prometheus"))


def test_the_rules_and_the_configuration_pass_prometheus_own_check(prometheus_image: str) -> None:
    mounted = ("--volume", f"{_PROMETHEUS}:/etc/prometheus:ro")
    tests = ROOT / "tests/container/programs/rules_over_processes.yml"
    promtool = (*mounted, "--volume", f"{tests}:/rules.yml:ro", "--entrypoint", "promtool", prometheus_image)
    for name in ("prometheus", "cluster"):
        docker("run", "--rm", *promtool, "check", "config", f"/etc/prometheus/{name}.yml")
    docker("run", "--rm", *promtool, "test", "rules", "/rules.yml")


class Site:
    """The project, with brokers beside its own that have faults."""

    def __init__(self, compose: Compose, ports: dict[str, int]) -> None:
        self.compose = compose
        self.ports = ports
        self.prometheus = Prometheus(ports["prometheus"])

    def address(self, broker: str = "broker") -> str:
        return f"localhost:{self.ports[broker]}"


@pytest.fixture(scope="module")
def site(prometheus_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ports = {name: free_port() for name in ("http", "prometheus")}
    held = hold_ports_apart(3)
    ports["broker"] = held[0].getsockname()[1]
    for each in held:
        each.close()
    configuration = shortened(folder / "prometheus", *_ALIASES)
    override = folder / "override.yml"
    override.write_text(
        f"""
services:
  broker:
    image: tidelog-test:up
    build:
      network: host
      args: {{DEBIAN_IMAGE: {base_image()}}}
    environment:
      TIDELOG_TRANSACTION_TWO_PHASE_COMMIT_ENABLE: "true"
    ports: !override
      - 127.0.0.1:{ports["broker"]}:9092
      - 127.0.0.1:{ports["broker"] + 100}:9192
      - 127.0.0.1:{ports["broker"] + 200}:9292
      - 127.0.0.1:{ports["http"]}:9644
  prometheus:
    image: {prometheus_image}
    entrypoint: [prometheus]
    ports: !override
      - 127.0.0.1:{ports["prometheus"]}:9090
    volumes: !override
      - {configuration}:/etc/prometheus:ro
"""
    )
    files = (ROOT / "docker-compose.yml", override)
    environment = {"TIDELOG_ADVERTISED_PORT": str(ports["broker"]), "TIDELOG_PROCESSES": "2"}
    tmpfs = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=16m,uid=10001")
    with (
        deadline("docker compose up", _START_SECONDS),
        project(*files, folder=folder, environment=environment) as compose,
    ):
        compose("up", "--build", "--detach", "--wait", "broker", "prometheus")
        network = ("--network", f"{compose.project}_default")
        image = broker_image()
        with (
            new_volume(*tmpfs) as small,
            container(image, *network, "--network-alias", "full", volume=small, environment=_SCRAPED) as full,
            container(image, *network, "--network-alias", "failing", environment=_SCRAPED) as failing,
            container(image, *network, "--network-alias", "gone", environment=_SCRAPED) as gone,
            container(
                image, *network, "--network-alias", "halved", environment=_TWO_PROCESSES | _SCRAPED
            ) as halved,
        ):
            lose_a_log(failing)
            lose_a_process(halved)
            one = Site(compose, ports | {"full": full.port})
            wait_for(lambda: one.prometheus.values("up") == [1.0] * 5, "five brokers", _SETTLE_SECONDS)
            docker("kill", gone.name)
            yield one


def lose_a_log(broker: Container) -> None:
    """A partition whose file cannot be opened any more."""
    subprocess.run([*_TIDELOG, "topic", "create", "lost", "-b", broker.bootstrap_servers], check=True)
    broker.exec("bash", "-c", "chmod 000 /var/lib/tidelog/lost-0/*.log")
    docker("restart", broker.name)
    broker.wait_until_ready()


def lose_a_process(broker: Container) -> None:
    """One of two that both lead partitions ends, and cannot start again."""
    broker.exec("tidelog", "topic", "create", "waiting", "--partitions", "2")
    folder = "/var/lib/tidelog/processes/1"
    broker.exec("bash", "-c", f"chmod 000 {folder} && kill -9 {broker.pid_of('1')}")


async def overfill(address: str) -> None:
    """Write until the disk takes no more."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("large")])
    async with Producer(bootstrap_servers=address, delivery_timeout_ms=5000) as producer:
        sent = [await producer.send("large", bytes(500_000)) for _ in range(60)]
        await asyncio.gather(*sent, return_exceptions=True)


async def send_sequences(address: str) -> None:
    """Each batch once, again, and with a sequence that does not follow."""
    row = [(1_700_000_000_000, b"k", b"v", ())]
    async with Admin(bootstrap_servers=address) as admin:
        [topic] = await admin.describe_topics(["orders"])
        nodes = {node.node_id: node.port for node in (await admin.describe_cluster()).brokers}
    async with Wire.connected(nodes[topic.partitions[0].leader]) as wire:
        _, producer_id = await wire.new_producer_id()
        for sequence in (0, 0, *[100] * 1000):
            await wire.append("orders", {0: make_batch(row, producer=(producer_id, 0, sequence))})


async def fence(address: str) -> None:
    """A second producer of one transactional id, and the first one continues."""
    async with Producer(bootstrap_servers=address, transactional_id="one") as first:
        await first.begin_transaction()
        await first.send_and_wait("orders", b"before")
        async with Producer(bootstrap_servers=address, transactional_id="one"):
            with pytest.raises(ClientError):
                await first.send_and_wait("orders", b"after")


async def leave_a_group_behind(address: str) -> None:
    """It commits once, and then nobody reads what comes."""
    async with Consumer(
        "orders", bootstrap_servers=address, group_id="stuck", auto_offset_reset="earliest"
    ) as consumer:
        read = await consumer.getone()
        await consumer.commit()
    async with Producer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("orders", b"unread", partition=read.partition)


async def use(address: str, over: asyncio.Event) -> None:
    """Write and read with a group, and ask for what does not exist."""
    async with (
        Producer(bootstrap_servers=address) as producer,
        Consumer("used", bootstrap_servers=address, group_id="readers") as consumer,
    ):
        while not over.is_set():
            await producer.send_and_wait("used", bytes(100))
            await consumer.getmany(timeout_ms=100)
            await consumer.commit()


@pytest.fixture
async def faults(site: Site) -> AsyncIterator[None]:
    address = site.address()
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", 2), NewTopic("used", 2)])
    over = asyncio.Event()
    using = asyncio.create_task(use(address, over))
    try:
        await overfill(site.address("full"))
        await send_sequences(address)
        await leave_a_group_behind(address)
        async with Producer(
            bootstrap_servers=address, transactional_id="two", transaction_two_phase_commit_enable=True
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"prepared")
            await producer.prepare()
            await fence(address)
            yield
            await producer.abort_transaction()
    finally:
        over.set()
        await using


async def test_every_rule_fires_by_a_real_fault_and_every_panel_shows_data(site: Site, faults: None) -> None:
    prometheus = site.prometheus
    assert prometheus.rules() == re.findall(r"- (?:alert|record): (\S+)", _RULES)

    def missing() -> dict[str, str]:
        silent = dict.fromkeys(set(_ALERTS) - _OF_SEVERAL_BROKERS - prometheus.firing(), "does not fire")
        for name, expression in _QUERIES:
            query = expression.replace("$__rate_interval", "30s")
            query = query.replace("$instance", ".*").replace("$topic", ".*")
            if not [value for value in prometheus.values(query) if value == value]:
                silent[name] = query
        return silent

    left = missing()
    ends = time.monotonic() + _SETTLE_SECONDS
    while left and time.monotonic() < ends:
        left = await asyncio.to_thread(missing)
        await asyncio.sleep(1)
    assert not left


def test_the_profile_secure_serves_admin_inside_and_outside_and_nobody_without_a_password(
    tmp_path: Path,
) -> None:
    port = free_port()
    password = tmp_path / "admin-password"
    password.write_text("a password of the test")
    override = tmp_path / "override.yml"
    override.write_text(
        f"""
services:
  secure-setup:
    image: {broker_image()}
  broker-secure:
    image: {broker_image()}
    command: !override
      - serve
      - --config=/setup/broker.toml
      - --data-dir=/var/lib/tidelog/data
      - --set=listeners=SASL_SSL://0.0.0.0:9093,INSIDE://0.0.0.0:29093
      - --set=advertised.listeners=SASL_SSL://localhost:{port},INSIDE://broker-secure:29093
      - --set=listener.security.protocol.map=SASL_SSL:SASL_SSL,INSIDE:SASL_SSL
    ports: !override
      - 127.0.0.1:{port}:9093
secrets:
  admin-password:
    file: {password}
"""
    )
    files = (ROOT / "docker-compose.yml", override)
    with project(*files, folder=tmp_path) as compose:
        compose("--profile", "secure", "up", "--no-build", "--detach", "--wait", "broker-secure")
        authority = compose(
            "exec", "-T", "broker-secure", "cat", "/var/lib/tidelog/certificates/authority.pem"
        )
        (tmp_path / "authority.pem").write_text(authority)
        properties = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="admin" password="%s";
ssl.truststore.type=PEM
ssl.truststore.location=%s
"""
        outside = tmp_path / "admin.properties"
        outside.write_text(properties % (password.read_text(), tmp_path / "authority.pem"))
        inside = properties % (password.read_text(), "/var/lib/tidelog/certificates/authority.pem")
        create = ["topic", "create", "orders", "-b", f"localhost:{port}", "--command-config"]
        subprocess.run([*_TIDELOG, *create, str(outside)], check=True)
        listing = "tidelog topic list -b broker-secure:29093 --command-config /tmp/admin.properties"
        command = f"cat > /tmp/admin.properties && {listing}"
        assert "orders" in compose("exec", "-T", "broker-secure", "bash", "-c", command, given=inside)
        outside.write_text(properties % ("another password", tmp_path / "authority.pem"))
        refused = subprocess.run(
            [*_TIDELOG, *create, str(outside)], check=False, capture_output=True, text=True
        )
        assert refused.returncode == 1
        assert "authentication" in refused.stderr.lower()
