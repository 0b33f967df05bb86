"""Container, compose file, Prometheus and Grafana name things that exist: files, settings, metrics.

No engine runs here, so what an engine found once is held by its cause.
"""

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric

from tests.tidy.house import ROOT, texts
from tidelog.broker.app import Broker
from tidelog.broker.cluster.membership import ClusterCounts
from tidelog.broker.cluster.store import StoreMember, StoreView
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.settings import BOOTSTRAP_SERVERS_VARIABLE
from tidelog.broker.coordinator.offset_metrics import FAMILIES
from tidelog.broker.observability.metrics import InSyncCounts, Metrics, TransactionCounts
from tidelog.broker.processes.http_proxy import SECONDS, UP
from tidelog.broker.security.tls import ListenerTls
from tidelog.version import VERSION

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PORTS_OF_PROCESSES = ("9192", "9292", "9392", "9492")
COMPOSE = (ROOT / "docker-compose.yml").read_text()
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "tidelog.json").read_text())

_VERSION = re.compile(r"\b(?:tidelog[:-]|image\.version=)(\d+\.\d+\.\d+(?:rc\d+)?)")
_VARIABLE = re.compile(r"\b(TIDELOG_[A-Z_]+)(?=[:=])")
_METRIC = re.compile(r"\b((?:kafka|tidelog)_[a-z_]+)\b")
_RECORDED = re.compile(r"\btidelog:[a-z_]+:[a-z0-9_]+\b")
# Compose's own: it decides to which of the host's addresses ports are published.
_COMPOSE_ONLY = {"TIDELOG_PUBLISH"}
_COMMANDS_ONLY = {BOOTSTRAP_SERVERS_VARIABLE}


def setting_variables() -> set[str]:
    return {f"TIDELOG_{setting.name.replace('.', '_').upper()}" for setting in BrokerConfig().describe()}


def exposed_families() -> list[Metric]:
    """The metrics of a broker to which everything happened once."""
    metrics = Metrics()
    metrics.request_finished("Produce", 9, [(0, 1), (45, 1)], 0.001)
    metrics.batch_appended("topic", 1, 100)
    metrics.bytes_out("topic", 100)
    metrics.produce_failed("topic")
    metrics.group_commit(3)
    metrics.cluster = lambda: ClusterCounts(True, 1, 0, 1, 0)
    metrics.store = lambda: StoreView((StoreMember("url", alarms=("NOSPACE",)),))
    metrics.in_sync = lambda: InSyncCounts(1, 0, 0, 0, 0, 0)
    metrics.transactions = lambda: TransactionCounts({"Ongoing": 1}, {"id": 1.0})
    return list(metrics.registry.collect())


def exposed_metrics() -> set[str]:
    """Every sample name of them."""
    names = {sample.name for family in exposed_families() for sample in family.samples}
    return {*names, *(family.name for family in FAMILIES), UP}


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every panel, variable and rule."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for expression in re.findall(r"^\s+expr: (.+)$", (PROMETHEUS / "rules.yml").read_text(), re.MULTILINE):
        yield "rules.yml", expression


EXPRESSIONS = list(expressions())


def test_the_image_copies_what_exists_and_every_package_of_the_wheel() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert "tidelog" in sources
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    assert sorted(allowed) == sorted(sources)


def test_the_image_runs_a_broker_as_a_numeric_user() -> None:
    last_stage = DOCKERFILE.split("\nFROM ")[-1]
    for instruction in (
        "VOLUME /var/lib/tidelog",
        "STOPSIGNAL SIGTERM",
        'ENTRYPOINT ["tidelog"]\nCMD ["serve"]',
    ):
        assert instruction in last_stage
    # Kubernetes' runAsNonRoot believes numbers only.
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last_stage, re.MULTILINE)
    assert f"EXPOSE {BrokerConfig().port} 29092 {BrokerConfig().http_port}\n" in last_stage


async def test_the_health_check_accepts_only_a_broker_that_is_ready(tmp_path: Path) -> None:
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n +CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    assert f"${{TIDELOG_HTTP_PORT:-{BrokerConfig().http_port}}}" in command
    broker = await Broker.start(BrokerConfig.load({"port": 0, "http.port": 0, "data.dir": tmp_path}))
    environment = os.environ | {"TIDELOG_HTTP_PORT": str(broker.http_port)}

    async def is_healthy() -> bool:
        checking = await asyncio.create_subprocess_exec(
            *json.loads(command), env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await checking.wait() == 0

    assert await is_healthy()
    broker.is_ready = False
    assert not await is_healthy()
    await broker.stop()
    assert not await is_healthy()


def test_a_stop_is_through_before_the_engine_kills() -> None:
    (answering_ms,) = re.findall(r"TIDELOG_SHUTDOWN_TIMEOUT_MS=(\d+)", DOCKERFILE)
    (grace_seconds,) = re.findall(r"^    stop_grace_period: (\d+)s$", COMPOSE, re.MULTILINE)
    for patience_ms in (10_000, int(grace_seconds) * 1000):
        assert int(answering_ms) <= patience_ms / 2


def test_limits_are_left_to_the_engine() -> None:
    """One whose own limit is lower, as of an engine without root, would not start the container at all. The
    broker raises its soft limit itself."""
    assert "ulimits" not in COMPOSE


def test_every_version_in_the_image_comes_from_the_lock_file() -> None:
    installs = re.findall(r"(?:uv )?pip install (?:.|\\\n)+", DOCKERFILE)
    assert len(installs) == 4
    pinned = ("--constraint requirements.lock", "--require-hashes", "--offline --no-deps")
    assert all(any(flags in line for flags in pinned) for line in installs)


def test_images_and_wheels_are_called_by_the_version_of_the_project() -> None:
    found = {(path, version) for path in texts() for version in _VERSION.findall(path.read_text())}
    files = ("Dockerfile", "docker-bake.json", "docker-compose.yml")
    assert {ROOT / file for file in files} <= {path for path, _ in found}
    assert [each for each in sorted(found) if each[1] != VERSION] == []


@pytest.mark.parametrize("text", [DOCKERFILE, COMPOSE], ids=["Dockerfile", "docker-compose.yml"])
def test_every_variable_is_a_setting(text: str) -> None:
    named = set(_VARIABLE.findall(text))
    assert named
    assert named - _COMPOSE_ONLY - _COMMANDS_ONLY <= setting_variables()


def image_environment() -> dict[str, str]:
    """The settings that the image carries."""
    return dict(re.findall(r"^(?:ENV|   ) (TIDELOG_[A-Z_]+)=(\S+)", DOCKERFILE, re.MULTILINE))


def compose_environment(**given: str) -> dict[str, str]:
    """What the broker of the compose file gets, with `given` in the environment of whoever starts it."""

    def value(match: re.Match[str]) -> str:
        return given.get(match[1], match[2])

    service = re.search(r"^  broker:\n((?:    .*\n)+)", COMPOSE, re.MULTILINE)
    assert service is not None
    named = re.findall(r"^      (TIDELOG_[A-Z_]+): (.+)$", service[1], re.MULTILINE)
    filled = {name: re.sub(r"\$\{(\w+):-([^}]*)\}", value, text) for name, text in named}
    return image_environment() | filled


def listened_and_advertised(environment: dict[str, str]) -> list[tuple[str, str]]:
    config = BrokerConfig.load(environ=environment)
    assert config.listener_configs[0].host == "0.0.0.0"  # The HTTP port listens there as well.
    return [(listener.listened, listener.advertised) for listener in config.listener_configs]


def test_the_image_listens_everywhere_and_advertises_localhost_or_the_given_address() -> None:
    image = image_environment()
    assert listened_and_advertised(image) == [("PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://localhost:9092")]
    (example,) = re.findall(r"^#   -e TIDELOG_ADVERTISED_LISTENERS=(\S+)$", DOCKERFILE, re.MULTILINE)
    ((_, advertised),) = listened_and_advertised(image | {"TIDELOG_ADVERTISED_LISTENERS": example})
    assert advertised == example


def test_both_listeners_are_advertised_by_the_address_that_reaches_them() -> None:
    inside = ("INSIDE://0.0.0.0:29092", "INSIDE://broker:29092")
    assert listened_and_advertised(compose_environment()) == [
        ("OUTSIDE://0.0.0.0:9092", "OUTSIDE://localhost:9092"),
        inside,
    ]
    published = {"TIDELOG_ADVERTISED_HOST": "broker.example.org", "TIDELOG_ADVERTISED_PORT": "19092"}
    assert listened_and_advertised(compose_environment(**published)) == [
        ("OUTSIDE://0.0.0.0:9092", "OUTSIDE://broker.example.org:19092"),
        inside,
    ]
    assert "${TIDELOG_ADVERTISED_PORT:-9092}:9092" in COMPOSE
    assert re.search(r"^  broker:$", COMPOSE, re.MULTILINE)


def test_the_secure_broker_starts_with_the_certificate_and_the_user_that_its_setup_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its setup runs as it stands, but for the folders of the container."""
    folder = ROOT / "deploy" / "secure"
    password = tmp_path / "admin-password"
    password.write_text("admin-secret")
    here = {
        "/var/lib/tidelog": str(tmp_path / "volume"),
        "/etc/tidelog": str(tmp_path / "authority"),
        "/run/secrets/admin-password": str(password),
    }
    assert all(text in (folder / "setup.sh").read_text() for text in here)
    (tmp_path / "authority").mkdir()
    setup, settings = (
        re.sub("|".join(here), lambda match: here[match[0]], (folder / name).read_text())
        for name in ("setup.sh", "broker.toml")
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    certificates = tmp_path / "volume" / "certificates"

    def made(days: int = 365) -> bytes:
        command = ["sh", "-c", setup.replace("-days 365", f"-days {days}")]
        subprocess.run(command, check=True, env=os.environ | {"PATH": path})
        return (certificates / "broker.pem").read_bytes()

    first = made(days=29)
    second = made()
    assert first != second == made()
    trust = ["openssl", "verify", "-CAfile", certificates / "authority.pem", certificates / "broker.pem"]
    subprocess.run(trust, check=True)
    assert {each.name for each in certificates.iterdir()} == {"authority.pem", "broker.pem"}
    file = tmp_path / "broker.toml"
    file.write_text(settings)
    given = dict(re.findall(r"^      - --set=([\w.]+)=(\S+)$", COMPOSE, re.MULTILINE))
    config = BrokerConfig.load(given, environ=image_environment(), file=file)
    assert config.listener_configs[0].advertised == "SASL_SSL://localhost:9093"
    ListenerTls(config, "SASL_SSL")
    assert (tmp_path / "volume" / "data" / "cluster.db").exists()
    assert (certificates / "broker.pem").stat().st_mode & 0o077 == 0
    broker = yaml.safe_load(COMPOSE)["services"]["broker-secure"]
    assert "secure-authority-data" not in str(broker["volumes"])


def test_no_profile_starts_what_another_one_has() -> None:
    services = yaml.safe_load(COMPOSE)["services"]
    by_profile = {
        profile: {name for name, each in services.items() if profile in each["profiles"]}
        for profile in ("single", "secure", "cluster")
    }
    three = {f"{kind}-{number}" for kind in ("broker", "etcd") for number in (1, 2, 3)}
    assert by_profile == {
        "single": {"broker", "prometheus", "grafana"},
        "secure": {"secure-setup", "broker-secure"},
        "cluster": {*three, "prometheus-cluster", "grafana"},
    }
    for members in by_profile.values():
        assert all(set(services[each].get("depends_on", ())) <= members for each in members)


def test_several_brokers_that_start_together_keep_three_copies_of_which_two_are_awaited() -> None:
    pods = (ROOT / "deploy/kubernetes/cluster.yml").read_text()
    for name, value in (("TIDELOG_DEFAULT_REPLICATION_FACTOR", 3), ("TIDELOG_MIN_INSYNC_REPLICAS", 2)):
        assert f'{{name: {name}, value: "{value}"}}' in pods
        assert f"    {name}: {value}\n" in COMPOSE


def test_the_manifests_were_rendered_from_the_chart_as_it_is() -> None:
    """`make container` compares them with what Helm renders."""
    chart = ROOT / "deploy" / "helm" / "tidelog"
    files = sorted(str(each) for each in chart.rglob("*") if each.is_file())
    checksum = hashlib.sha256(b"".join(Path(each).read_bytes() for each in files)).hexdigest()
    for name in ("tidelog", "cluster"):
        first = (ROOT / f"deploy/kubernetes/{name}.yml").read_text().partition("\n")[0]
        assert checksum in first, "run `make manifests`"


def test_the_chart_has_the_version_of_the_project() -> None:
    described = yaml.safe_load((ROOT / "deploy/helm/tidelog/Chart.yaml").read_text())
    assert described["version"] == described["appVersion"] == VERSION


def test_every_image_is_pinned_to_a_version() -> None:
    images = re.findall(r"^ {2,4}image: (\S+)$", COMPOSE, re.MULTILINE)
    images += re.findall(r"^ARG \w+_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(images) == 8
    assert [image for image in images if not re.search(r":v?\d+", image)] == []


def test_other_machines_reach_no_http_port_and_no_password_is_well_known() -> None:
    published = re.findall(r"^      - ([$\d]\S+):(\d+)$", COMPOSE, re.MULTILINE)
    assert {port for host, port in published if not host.startswith("127.0.0.1:")} == {
        "9092",
        *PORTS_OF_PROCESSES,
    }
    assert 'GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION: "true"' in COMPOSE


def test_everything_mounted_exists_and_every_volume_is_declared() -> None:
    mounts = re.findall(r"^      - ([\w./-]+):(/[\w/.-]+)(?::ro)?$", COMPOSE, re.MULTILINE)
    declared = re.findall(r"^  ([\w-]+-data):$", COMPOSE, re.MULTILINE)
    for source, _ in mounts:
        assert (ROOT / source).is_dir() if source.startswith("./") else source in declared
    assert ("broker-data", "/var/lib/tidelog") in mounts


def test_prometheus_scrapes_the_broker_s_http_port_and_loads_the_rules() -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    (interval,) = re.findall(r"^  scrape_interval: (\d+)s$", text, re.MULTILINE)
    assert int(interval) > SECONDS, "a process that hangs would hide the others from Prometheus"
    assert f"targets: [broker:{BrokerConfig().http_port}]" in text
    targets = ", ".join(f"broker-{number}:{BrokerConfig().http_port}" for number in (1, 2, 3))
    cluster = text.replace(f"broker:{BrokerConfig().http_port}", targets)
    assert (PROMETHEUS / "cluster.yml").read_text() == cluster
    # The HTTP port answers by a name that is advertised.
    assert "//broker:" in compose_environment()["TIDELOG_ADVERTISED_LISTENERS"]
    for file in re.findall(r"^  - (\S+\.yml)$", text, re.MULTILINE):
        assert (PROMETHEUS / file).exists()
    assert f"{PROMETHEUS.relative_to(ROOT)}:/etc/prometheus:ro" in COMPOSE
    for file in ("prometheus", "cluster"):
        assert f"--config.file=/etc/prometheus/{file}.yml" in COMPOSE


def test_every_metric_has_a_help_text_and_no_suffix_of_another_type() -> None:
    """The rules of `promtool check metrics`, but for Kafka's own names in milliseconds and percent."""
    for family in exposed_families():
        assert family.documentation, family.name
        assert not re.search(r"_(count|sum|bucket|total|info)$", family.name)
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)


def test_every_metric_in_a_panel_or_rule_is_exposed() -> None:
    recorded = set(re.findall(r"record: (\S+)", (PROMETHEUS / "rules.yml").read_text()))
    for where, expression in EXPRESSIONS:
        named = set(_METRIC.findall(_RECORDED.sub("", expression)))
        assert named <= exposed_metrics(), where
        assert set(_RECORDED.findall(expression)) <= recorded, where
        assert named or _RECORDED.search(expression) or "up{" in expression, where
        assert expression.count("(") == expression.count(")"), where
        assert expression.count("{") == expression.count("}"), where


def test_an_alert_sees_the_first_event_of_a_counter() -> None:
    """increase() and rate() do not see a series begin, so it must be there before or be looked for."""
    from_the_start = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    rules = (PROMETHEUS / "rules.yml").read_text()
    for alert, expression in re.findall(r"- alert: (\w+)\n +expr: (.+)", rules):
        grown = set(re.findall(r"(?:increase|rate)\((\w+)", expression))
        assert grown <= from_the_start or " unless " in expression, alert


def test_grafana_finds_the_dashboard_and_the_dashboard_its_data() -> None:
    source = (GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text()
    provider = (GRAFANA / "provisioning" / "dashboards" / "tidelog.yml").read_text()
    assert "url: http://prometheus:9090" in source
    chosen = DASHBOARD["templating"]["list"][0]["current"]["value"]
    assert f"uid: {chosen}" in source
    for folder in ("dashboards", "datasources"):
        assert f"./deploy/grafana/provisioning/{folder}:/etc/grafana/provisioning/{folder}:ro" in COMPOSE
    assert "path: /var/lib/grafana/dashboards" in provider
    assert "./deploy/grafana/dashboards:/var/lib/grafana/dashboards:ro" in COMPOSE
    assert "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: /var/lib/grafana/dashboards/tidelog.json" in COMPOSE


def test_panels_have_their_own_ids_and_do_not_overlap() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_metric_that_operators_look_for_has_a_panel() -> None:
    shown = {metric for _, expression in EXPRESSIONS for metric in _METRIC.findall(expression)}
    for metric in (
        "kafka_network_requestmetrics_errors_total",
        "kafka_network_requestmetrics_requests_total",
        "kafka_network_requestmetrics_totaltimems_bucket",
        "kafka_server_brokertopicmetrics_messagesin_total",
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "kafka_server_replicamanager_produceridcount",
        "tidelog_duplicate_batches_total",
        "tidelog_out_of_order_batches_total",
        "tidelog_fenced_batches_total",
        "tidelog_group_commit_batches_bucket",
        "kafka_consumergroup_lag_sum",
    ):
        assert metric in shown
