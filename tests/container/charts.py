"""The chart of deploy/helm, by Helm's own program: it passes the check, refuses wrong values, and is what
deploy/kubernetes was rendered from.

`make container` runs it; no engine is needed, but `helm`, or Go with its module proxy to compile it.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deadline import deadline
from tests.go_programs import SECONDS, built
from tests.tidy.house import ROOT
from tidelog.broker.configuration.broker_config import BrokerConfig

_MODULE = "helm.sh/helm/v3@v3.22.0"
_SUM = "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU="
_CHART = ROOT / "deploy" / "helm" / "tidelog"
_KUBERNETES = ("1.28", "1.32", "1.37")
VALUES: dict[str, dict[str, Any]] = {
    "tidelog": {},
    "cluster": {"brokers": 3},
    "secure": {"tls": {"secret": "certificates"}, "users": {"secret": "people", "super": ["admin", "root"]}},
    "users": {"brokers": 3, "users": {"secret": "people"}, "settings": {"log.retention.ms": "86400000"}},
    "balanced": {
        "brokers": 5,
        "outside": {
            "type": "LoadBalancer",
            "host": "kafka-$(TIDELOG_NODE_ID).example.org",
            "annotations": {
                "external-dns.alpha.kubernetes.io/hostname": "kafka-$(TIDELOG_NODE_ID).example.org"
            },
        },
        "antiAffinity": "required",
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "ported": {
        "brokers": 3,
        "tls": {"secret": "certificates"},
        "outside": {"type": "NodePort"},
        "topics": ["orders:3", "clicks:12"],
        "storage": {"className": "fast"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "partition": 2,
    },
    "alone outside": {"outside": {"type": "NodePort"}},
}
"""What users set, each for a way to run it."""


class Helm:
    """The program, for the chart."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._values = folder / "values.json"

    def run(
        self, *arguments: str, values: dict[str, Any], version: str = _KUBERNETES[-1]
    ) -> subprocess.CompletedProcess[str]:
        self._values.write_text(json.dumps(values))
        more = ["--kube-version", version, "--values", str(self._values)]
        return subprocess.run([self._program, *arguments, *more], capture_output=True, text=True, check=False)

    def rendered(self, values: dict[str, Any], version: str = _KUBERNETES[-1]) -> str:
        done = self.run("template", "tidelog", str(_CHART), values=values, version=version)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    folder = tmp_path_factory.mktemp("helm")
    found = shutil.which("helm")
    with deadline("the build of Helm", SECONDS):
        program = (
            Path(found)
            if found
            else built(folder / "helm", _MODULE, _SUM, "build", "-trimpath", "./cmd/helm")
        )
    return Helm(program, folder)


@pytest.mark.parametrize("way", VALUES)
def test_helm_finds_nothing_to_change(helm: Helm, way: str) -> None:
    done = helm.run("lint", "--strict", str(_CHART), values=VALUES[way])
    assert done.returncode == 0, done.stdout
    assert not re.search("WARNING|ERROR", done.stdout)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"brokers": 2}, "/brokers"),
        ({"broker": 3}, "'broker' not allowed"),
        ({"settings": {"log.retention.ms": 86400000}}, "want string"),
        ({"outside": {"type": "LoadBalancer"}}, "/outside/host"),
        ({"outside": {"type": "NodePort", "nodePort": 30095}}, "multipleOf"),
    ],
)
def test_wrong_values_are_refused_by_their_name(helm: Helm, values: dict[str, Any], said: str) -> None:
    done = helm.run("template", "tidelog", str(_CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("file", ["tidelog", "cluster"])
def test_the_manifests_are_the_chart(helm: Helm, file: str) -> None:
    text = (ROOT / f"deploy/kubernetes/{file}.yml").read_text()
    assert text.partition("\n")[2] == helm.rendered(VALUES[file]), "run `make manifests`"


@pytest.mark.parametrize("version", _KUBERNETES)
def test_each_object_has_the_schema_of_kubernetes(
    helm: Helm, tools: dict[str, str], tmp_path: Path, version: str
) -> None:
    """A ServiceMonitor has none: it is the Prometheus operator's."""
    for way, values in VALUES.items():
        objects = [
            each
            for each in yaml.safe_load_all(helm.rendered(values, version))
            if each["kind"] != "ServiceMonitor"
        ]
        (tmp_path / f"{way}.yml").write_text(yaml.safe_dump_all(objects))
    files = map(str, tmp_path.glob("*.yml"))
    validate = [sys.executable, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", version]
    subprocess.run([*validate, *files], env=tools, check=True)


def listeners(objects: list[dict[str, Any]], index: int) -> list[str]:
    """Where the broker of a pod is reached: Kubernetes fills its environment, and the broker reads it."""
    [stateful] = [
        each for each in objects if each["kind"] == "StatefulSet" and "etcd" not in str(each["metadata"])
    ]
    fields = {
        "metadata.namespace": "shop",
        "metadata.name": f"tidelog-{index}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        "status.hostIP": "192.0.2.1",
    }
    environment: dict[str, str] = {}
    for each in stateful["spec"]["template"]["spec"]["containers"][0]["env"]:
        field = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        text = each.get("value") or fields.get(field, "admin:secret")
        environment[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], text)
    config = BrokerConfig.load(environ=environment)
    ports = {port["containerPort"] for port in stateful["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {each.port for each in config.listener_configs} | {config.http_port} == ports
    return [listener.advertised for listener in config.listener_configs]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("secure", ["SASL_SSL://tidelog.shop.svc:9092"]),
        ("users", ["SASL_PLAINTEXT://tidelog-2.tidelog-brokers.shop.svc:9092"]),
        (
            "balanced",
            ["PLAINTEXT://tidelog-2.tidelog-brokers.shop.svc:9092", "OUTSIDE://kafka-2.example.org:9094"],
        ),
        ("ported", ["SSL://tidelog-2.tidelog-brokers.shop.svc:9092", "OUTSIDE://192.0.2.1:30092"]),
        ("alone outside", ["PLAINTEXT://tidelog.shop.svc:9092", "OUTSIDE://192.0.2.1:30090"]),
    ],
)
def test_each_broker_advertises_where_its_services_lead(helm: Helm, way: str, expected: list[str]) -> None:
    objects = list(yaml.safe_load_all(helm.rendered(VALUES[way])))
    assert listeners(objects, 2) == expected
    outside = [each["spec"] for each in objects if "-outside-" in each["metadata"]["name"]]
    brokers = VALUES[way].get("brokers", 1)
    asked = VALUES[way].get("outside", {}).get("type")
    assert [each["selector"]["statefulset.kubernetes.io/pod-name"] for each in outside] == (
        [f"tidelog-{index}" for index in range(brokers)] if asked else []
    )
    if asked == "NodePort":
        assert [each["ports"][0]["nodePort"] for each in outside] == [
            30090 + index for index in range(brokers)
        ]


def test_prometheus_finds_each_broker_once(helm: Helm) -> None:
    for values in (VALUES["balanced"], {"serviceMonitor": {"enabled": True}}):
        objects = list(yaml.safe_load_all(helm.rendered(values)))
        [monitor] = [each for each in objects if each["kind"] == "ServiceMonitor"]
        selected = monitor["spec"]["selector"]["matchLabels"].items()
        [service] = [
            each
            for each in objects
            if each["kind"] == "Service" and selected <= each["metadata"].get("labels", {}).items()
        ]
        [endpoint] = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_no_pod_gets_a_token_of_kubernetes(helm: Helm) -> None:
    for values in VALUES.values():
        pods = [
            each["spec"]["template"]["spec"]
            for each in yaml.safe_load_all(helm.rendered(values))
            if each["kind"] == "StatefulSet"
        ]
        assert pods
        assert not any(pod["automountServiceAccountToken"] for pod in pods)
