"""Kubernetes itself, on a node of this machine: its API server takes each object of the chart, and the
manifests serve, also while pods are deleted and replaced by another image.

`make kubernetes` runs it; `tests.container.node` says what it needs. The node's network enforces no
NetworkPolicy.
"""

import json
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.container.charts import VALUES, Helm, helm
from tests.container.engine import docker
from tests.container.images import broker_image, debian_image
from tests.container.node import KUBERNETES, Node, node
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.version import VERSION

__all__ = ["helm"]

_CLUSTER = ROOT / "deploy" / "kubernetes" / "cluster.yml"
_IMAGE = f"tidelog:{VERSION}"
_NEXT = "tidelog:next"
_NAMESPACE = "shop"
_SERVER = f"tidelog.{_NAMESPACE}.svc:9092"
_RECORDS = 500


class Shop:
    """The cluster's namespace, with a pod that has clients."""

    def __init__(self, one: Node) -> None:
        self.node = one
        self.written = 0

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        return self.node.kubectl("--namespace", _NAMESPACE, *arguments, given=given, check=check)

    def client(self, *command: str, given: str | None = None, check: bool = True) -> str:
        inside = ("exec", "--stdin", "client", "--")
        return self.kubectl(*inside, *command, "-b", _SERVER, given=given, check=check)

    def write(self) -> None:
        """More numbers, each acknowledged."""
        numbers = range(self.written, self.written + _RECORDS)
        self.client("tidelog", "produce", "orders", given="".join(f"{each}\n" for each in numbers))
        self.written += _RECORDS

    def read(self) -> list[int]:
        """All records, in order of the number."""
        count = str(self.written)
        read = self.client("tidelog", "consume", "orders", "--from-beginning", "--max-messages", count)
        return sorted(map(int, read.split()))

    def wait_for(self, stateful: str) -> None:
        rollout = ("rollout", "status", "--timeout", f"{DEADLINE_SECONDS}s", f"statefulset/{stateful}")
        self.kubectl(*rollout)

    def images(self) -> list[str]:
        """Of the broker of each pod."""
        pods = self.kubectl("get", "pods", "--selector", "app=tidelog", "--output", "json")
        return [each["spec"]["containers"][0]["image"] for each in json.loads(pods)["items"]]


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    etcd = debian_image("etcd-with-client", "etcd-server etcd-client", folder)
    [named] = re.findall(r"image: (\S+/etcd:\S+)", _CLUSTER.read_text())
    docker("tag", etcd, named)
    for name in (_IMAGE, _NEXT):
        docker("tag", broker_image(), name)
    with node(folder) as one:
        one.load(_IMAGE, _NEXT, named)
        yield one


def steps() -> tuple[str, str]:
    """The commands in the comment of cluster.yml: before `kubectl apply`, and once etcd runs."""
    commands = re.findall(r"^#   (.*)$", _CLUSTER.read_text(), re.MULTILINE)
    text = "\n".join(commands).replace("NAMESPACE", _NAMESPACE).replace("deploy/", f"sh {ROOT}/deploy/")
    before, users = text.split("etcdctl()", 1)
    return before, f"etcdctl(){users}"


@pytest.fixture(scope="module")
def shop(kubernetes: Node, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Three brokers over etcd, as the comment of cluster.yml says."""
    kubernetes.add_volumes(*(f"shop-{index}" for index in range(6)))
    kubernetes.kubectl("create", "namespace", _NAMESPACE)
    kubernetes.kubectl("config", "set-context", "--current", "--namespace", _NAMESPACE)
    secrets = tmp_path_factory.mktemp("secrets")
    before, users = steps()
    one = Shop(kubernetes)
    kubernetes.run("bash", "-euc", before, cwd=secrets)
    one.kubectl("apply", "-f", str(_CLUSTER))
    one.wait_for("tidelog-etcd")
    kubernetes.run("bash", "-euc", users, cwd=secrets)
    one.wait_for("tidelog")
    assert {each.name: stat.filemode(each.stat().st_mode) for each in secrets.glob("*.key")} == {
        "ca.key": "-rw-------",
        "tls.key": "-rw-------",
    }
    one.kubectl("run", "client", f"--image={_IMAGE}", "--command", "--", "sleep", "infinity")
    one.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    one.client("tidelog", "topic", "create", "orders", "--partitions", "6")
    one.write()
    return one


@pytest.mark.parametrize("way", VALUES)
def test_the_api_server_takes_each_object_of_the_chart(kubernetes: Node, helm: Helm, way: str) -> None:
    """A ServiceMonitor is not known to it: it is the Prometheus operator's."""
    objects = [
        each
        for each in yaml.safe_load_all(helm.rendered(VALUES[way], KUBERNETES))
        if each["kind"] != "ServiceMonitor"
    ]
    command = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    told = kubernetes.kubectl(*command, given=yaml.safe_dump_all(objects))
    assert told.count("(server dry run)") == len(objects)
    assert "Warning" not in told


def test_brokers_and_members_may_be_killed(shop: Shop) -> None:
    replicas = shop.client("tidelog", "topic", "describe", "orders", "--json")
    assert {len(each["replicas"].split(",")) for each in json.loads(replicas)["partitions"]} == {3}
    for pod in ("tidelog-2", "tidelog-etcd-0"):
        shop.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        shop.write()
        shop.wait_for(pod.rpartition("-")[0])
    assert shop.read() == list(range(shop.written))
    wait_for(
        lambda: "no problems found" in shop.client("tidelog", "cluster", "status", check=False),
        "a healthy cluster",
        DEADLINE_SECONDS,
    )


def test_an_upgrade_goes_on_by_partition_while_records_are_written(shop: Shop) -> None:
    """As `helm upgrade --set partition=…` does."""

    def upgrade(partition: int) -> None:
        [change] = [
            each
            for each in yaml.safe_load_all(_CLUSTER.read_text().replace(_IMAGE, _NEXT))
            if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "tidelog"
        ]
        change["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = partition
        shop.kubectl("apply", "-f", "-", given=json.dumps(change))
        progress = ("rollout", "status", "--timeout", "1s", "statefulset/tidelog")
        while "roll out complete" not in shop.kubectl(*progress, check=False):
            shop.write()

    upgrade(2)
    assert shop.images() == [_IMAGE, _IMAGE, _NEXT]
    upgrade(0)
    assert shop.images() == [_NEXT] * 3
    assert shop.read() == list(range(shop.written))


def test_a_drain_takes_one_broker_at_a_time(shop: Shop) -> None:
    def evict(pod: str) -> str:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": _NAMESPACE},
        }
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod}/eviction"
        return shop.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction), check=False)

    shop.wait_for("tidelog")
    assert "Success" in evict("tidelog-0")
    assert "disruption budget" in evict("tidelog-1")
    shop.wait_for("tidelog")
    wait_for(lambda: "Success" in evict("tidelog-1"), "another eviction", DEADLINE_SECONDS)
    shop.wait_for("tidelog")
    assert shop.read() == list(range(shop.written))


def test_one_broker_serves_outside_by_its_node_and_keeps_its_records(kubernetes: Node, helm: Helm) -> None:
    kubernetes.add_volumes("one")
    kubernetes.kubectl("create", "namespace", "one")
    rendered = helm.rendered(VALUES["alone outside"])
    kubernetes.kubectl("--namespace", "one", "apply", "-f", "-", given=rendered)
    rollout = ("rollout", "status", "--timeout", f"{DEADLINE_SECONDS}s", "statefulset/tidelog")
    kubernetes.kubectl("--namespace", "one", *rollout)
    tidelog = str(Path(sys.executable).with_name("tidelog"))
    outside = ("-b", "192.0.2.10:30090")
    listing = (tidelog, "topic", "list", *outside)
    wait_for(lambda: kubernetes.run(*listing, check=False) == "", "the port of the node", DEADLINE_SECONDS)
    kubernetes.run(tidelog, "produce", "--create-topic", "orders", *outside, given="order\n")
    kubernetes.kubectl("--namespace", "one", "delete", "pod", "tidelog-0")
    kubernetes.kubectl("--namespace", "one", *rollout)
    wait_for(lambda: "orders" in kubernetes.run(*listing, check=False), "the topic", DEADLINE_SECONDS)
    read = (tidelog, "consume", "orders", "--from-beginning", "--max-messages", "1", *outside)
    assert kubernetes.run(*read) == "order\n"
