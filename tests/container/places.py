"""What docs/containers.md offers to copy does what it says, as far as one machine can find out.

`make container` runs it; it needs a container engine and the package index of Python.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.container.compose import project
from tests.container.containers import new_name, new_volume
from tests.container.engine import docker
from tests.container.images import base_image, broker_image, built, debian_image
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.version import VERSION

_DOCUMENT = (ROOT / "docs" / "containers.md").read_text()
_NAMED = f"tidelog:{VERSION}"
_KUBERNETES = {
    name: list[dict[str, Any]](yaml.safe_load_all((ROOT / f"deploy/kubernetes/{name}.yml").read_text()))
    for name in ("tidelog", "cluster")
}
"""The objects of each file."""
_NAMESPACE = "shop"


def block_below(heading: str) -> str:
    """The first block of YAML below a heading of the page."""
    [text] = re.findall(rf"^## {heading}$.*?^```yaml\n(.*?)^```", _DOCUMENT, re.MULTILINE | re.DOTALL)
    return str(text)


def test_an_application_starts_with_its_broker_and_ends_well(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        block_below("In an application's compose file").replace(_NAMED, broker_image())
    )
    (tmp_path / "Dockerfile").write_text(
        f"FROM {broker_image()}\n"
        'ENTRYPOINT ["sh", "-c", "echo order | tidelog produce --create-topic orders -b $KAFKA'
        ' && exec tidelog consume orders --from-beginning --max-messages 1 -b $KAFKA"]\n'
    )
    with project(tmp_path / "compose.yaml", folder=tmp_path, directory=tmp_path) as compose:
        told = compose("up", "--build", "--exit-code-from", "application")
    assert re.search(r"application-1\s+\| order$", told, re.MULTILINE), told


def test_the_workflows_have_the_schema_of_github(tools: dict[str, str], tmp_path: Path) -> None:
    workflow = tmp_path / "test.yml"
    workflow.write_text(block_below("In GitHub Actions"))
    workflows = map(str, (workflow, *(ROOT / ".github" / "workflows").glob("*.yml")))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    subprocess.run([*check, *workflows], env=tools, check=True)


def of_kind(file: str, kind: str) -> dict[str, dict[str, Any]]:
    """The specifications of its objects of this kind, by their names."""
    return {each["metadata"]["name"]: each["spec"] for each in _KUBERNETES[file] if each["kind"] == kind}


@pytest.mark.parametrize("file", _KUBERNETES)
def test_the_objects_of_kubernetes_fit_each_other(file: str) -> None:
    services = of_kind(file, "Service")
    for name, stateful in of_kind(file, "StatefulSet").items():
        labels = stateful["template"]["metadata"]["labels"]
        for service in (name, stateful["serviceName"]):
            assert services[service]["selector"] == labels == stateful["selector"]["matchLabels"]
        budget = of_kind(file, "PodDisruptionBudget")[name]
        assert budget["selector"]["matchLabels"] == labels
        [claim] = stateful["volumeClaimTemplates"]
        pod = stateful["template"]["spec"]
        mounts = [each["name"] for each in pod["containers"][0]["volumeMounts"]]
        assert mounts == [claim["metadata"]["name"], *(each["name"] for each in pod.get("volumes", ()))]


class Pod:
    """What Kubernetes makes of a pod of a stateful set, in Docker. Its names are aliases in `network`."""

    def __init__(self, file: str, stateful: str, index: int, network: str, secrets: Path) -> None:
        """`secrets` has a folder for each secret, with a file for each of its keys."""
        self._secrets = secrets
        self.container_name = new_name()
        self.spec = of_kind(file, "StatefulSet")[stateful]["template"]["spec"]
        [self.container] = self.spec["containers"]
        self._network = network
        hostname = f"{stateful}-{index}"
        fields = {
            "metadata.namespace": _NAMESPACE,
            "metadata.name": hostname,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(index),
        }
        self._environment: dict[str, str] = {}
        for each in self.container["env"]:
            source = each.get("valueFrom", {})
            if (asked := source.get("secretKeyRef")) is not None:
                text = (secrets / asked["name"] / asked["key"]).read_text()
            else:
                text = each.get("value") or fields[source["fieldRef"]["fieldPath"]]
            self._environment[each["name"]] = self._filled(text)
        labels = of_kind(file, "StatefulSet")[stateful]["selector"]["matchLabels"]
        own = [name for name, service in of_kind(file, "Service").items() if service["selector"] == labels]
        headless = [name for name in own if "clusterIP" in of_kind(file, "Service")[name]]
        # As in Kubernetes, the name of a headless service has the addresses of all its pods.
        self.names = [
            *(f"{hostname}.{name}.{_NAMESPACE}.svc" for name in headless),
            *(f"{name}.{_NAMESPACE}.svc" for name in own),
        ]

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda match: self._environment[match[1]], text)

    def start(self, image: str, volume: str) -> None:
        command = [self._filled(text) for text in self.container.get("command", ())]
        owner = f"{self.spec['securityContext']['runAsUser']}:{self.spec['securityContext']['runAsGroup']}"
        mount, *others = self.container["volumeMounts"]
        where = ("--volume", f"{volume}:{mount['mountPath']}:nocopy")
        for other, held in zip(others, self.spec.get("volumes", ()), strict=True):
            folder = self._secrets / held["secret"]["secretName"]
            where += ("--volume", f"{folder}:{other['mountPath']}:ro")
        # As fsGroup does.
        chown = ("--user", "0", "--entrypoint", "chown", *where, image, owner, mount["mountPath"])
        docker("run", "--rm", *chown)
        docker(
            *("run", "--detach", "--name", self.container_name, "--restart", "on-failure", *where),
            *("--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", owner, "--network", self._network),
            *("--memory", self.container["resources"]["limits"]["memory"].removesuffix("i").lower()),
            *(part for name in self.names for part in ("--network-alias", name)),
            *(part for pair in self._environment.items() for part in ("--env", "=".join(pair))),
            *(("--entrypoint", command[0], image, *command[1:]) if command else (image,)),
        )

    def passes(self, probe: str) -> bool:
        ports = {each["name"]: each["containerPort"] for each in self.container["ports"]}
        network = ("run", "--rm", "--network", f"container:{self.container_name}", "--entrypoint", "bash")
        get = self.container[probe]["httpGet"]
        ask = (
            f"exec 3<>/dev/tcp/localhost/{ports[get['port']]}"
            f" && printf 'GET {get['path']} HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3"
        )
        return " 200 " in docker(*network, broker_image(), "-c", ask, check=False).stdout

    def wait_for_probes(self) -> None:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in self.container:
                wait_for(partial(self.passes, probe), f"{probe} of {self.names}", DEADLINE_SECONDS)


@contextmanager
def pods(
    file: str,
    images: dict[str, str],
    secrets: Path = ROOT,
    when_started: Callable[[str, str], None] = lambda *_: None,
) -> Iterator[list[Pod]]:
    """All pods of a file, which are ready by their probes. `images` are those of its stateful sets, in the
    order in which they start; `when_started` is called with the network and the name of each one."""
    network = new_name()
    docker("network", "create", network)
    with ExitStack() as stack:
        stack.callback(docker, "network", "rm", network)
        running = []
        for stateful, image in images.items():
            for index in range(of_kind(file, "StatefulSet")[stateful].get("replicas", 1)):
                pod = Pod(file, stateful, index, network, secrets)
                volume = stack.enter_context(new_volume())
                stack.callback(docker, "rm", "--force", "--volumes", pod.container_name)
                pod.start(image, volume)
                running.append(pod)
            when_started(network, stateful)
        for pod in running:
            pod.wait_for_probes()
        yield running


def advertised(pod: Pod) -> list[str]:
    events = map(json.loads, docker("logs", pod.container_name).stdout.splitlines())
    [started] = [each for each in events if each["event"] == "broker_started"]
    return list(started["advertised_listeners"])


def test_the_container_of_the_pod_becomes_ready_by_its_probes() -> None:
    with pods("tidelog", {"tidelog": broker_image()}) as [broker]:
        assert broker.container["image"] == _NAMED
        assert advertised(broker) == ["PLAINTEXT://tidelog.shop.svc:9092"]


_MAKE_USERS = """
import json, ssl, sys, time, urllib.request
context = ssl.create_default_context(cafile="/secrets/ca.crt")
password, host = sys.argv[1:]
# From tidelog/ to tidelog0.
key = {"key": "dGlkZWxvZy8=", "range_end": "dGlkZWxvZzA=", "permType": "READWRITE"}
for path, body in (
    ("user/add", {"name": "root", "password": "of root"}),
    ("user/grant", {"user": "root", "role": "root"}),
    ("role/add", {"name": "tidelog"}),
    ("role/grant", {"name": "tidelog", "perm": key}),
    ("user/add", {"name": "tidelog", "password": password}),
    ("user/grant", {"user": "tidelog", "role": "tidelog"}),
    ("enable", {}),
):
    request = urllib.request.Request(f"https://{host}:2379/v3/auth/{path}", json.dumps(body).encode())
    for _ in range(60):
        try:
            urllib.request.urlopen(request, context=context, timeout=10).read()
            break
        except OSError as error:
            if getattr(error, "code", 0) == 400:
                break  # An attempt before was executed.
            time.sleep(1)
    else:
        sys.exit(f"{path} was not answered")
"""
"""What the comment of cluster.yml does with etcdctl, which Debian's package of the server does not have."""


def test_the_pods_of_the_cluster_serve_together_and_go_on_without_one(tmp_path: Path) -> None:
    etcd = debian_image("etcd", "etcd-server", tmp_path)
    certificates, password = (tmp_path / f"tidelog-etcd-{each}" for each in ("certificates", "password"))
    for folder in (certificates, password):
        folder.mkdir()
    script = ["sh", str(ROOT / "deploy/kubernetes/etcd-certificates.sh"), _NAMESPACE]
    subprocess.run(script, cwd=certificates, check=True)
    for each in certificates.iterdir():
        each.chmod(0o644)  # As fsGroup lets the pods read them.
    (password / "password").write_text("of etcd")

    def make_users(network: str, stateful: str) -> None:
        if stateful == "tidelog-etcd":
            where = (
                "--network",
                network,
                "--volume",
                f"{certificates}:/secrets:ro",
                "--entrypoint",
                "python",
            )
            host = f"tidelog-etcd-0.tidelog-etcd.{_NAMESPACE}.svc"
            docker("run", "--rm", *where, broker_image(), "-c", _MAKE_USERS, "of etcd", host)

    images = {"tidelog-etcd": etcd, "tidelog": broker_image()}
    with pods("cluster", images, tmp_path, make_users) as running:
        brokers = [pod for pod in running if pod.container["image"] == _NAMED]
        assert [advertised(broker) for broker in brokers] == [
            [f"PLAINTEXT://tidelog-{index}.tidelog-brokers.shop.svc:9092"] for index in range(3)
        ]

        def run(command: str) -> str:
            return docker("exec", brokers[0].container_name, "bash", "-c", command).stdout

        server = "-b tidelog.shop.svc:9092"
        run(f"tidelog topic create orders --partitions 6 {server}")
        assert "stored 1,000 records in orders" in run(f"seq 1000 | tidelog produce orders {server}")
        for pod in (running[0], brokers[2]):
            docker("kill", pod.container_name)
            docker("start", pod.container_name)
            pod.wait_for_probes()
        read = run(f"tidelog consume orders --from-beginning --max-messages 1000 {server}")
        assert sorted(map(int, read.split())) == list(range(1, 1001))
        members = [pod for pod in running if pod not in brokers]
        for member in members[1:]:
            docker("kill", member.container_name)
        left = members[0]
        wait_for(lambda: not left.passes("readinessProbe"), "a member without the others", DEADLINE_SECONDS)
        assert left.passes("livenessProbe")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with systemd, and the broker where the unit expects it."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "Dockerfile").write_text(
        f"FROM {broker_image()} AS broker\nFROM {base_image()}\n"
        "RUN apt-get update && apt-get install --yes --no-install-recommends systemd dbus python3\n"
        "COPY --from=broker /opt/tidelog /opt/tidelog\nENV PATH=/opt/tidelog/bin:$PATH container=docker\n"
    )
    return built("tidelog-test-systemd", folder)


def test_the_unit_passes_the_check_and_serves_under_systemd(machine: str) -> None:
    name = new_name()
    unit = "/etc/systemd/system/tidelog.service"
    # systemd needs the unified hierarchy, which an engine may not give.
    init = "umount -R /sys/fs/cgroup; mount -o remount,rw /sys; mount -t cgroup2 none /sys/fs/cgroup"

    def run(command: str) -> str:
        return docker("exec", name, "bash", "-c", command).stdout.strip()

    def is_serving() -> bool:
        return docker("exec", name, "tidelog", "topic", "list", check=False).returncode == 0

    try:
        docker(
            *("run", "--detach", "--name", name, "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE"),
            *("--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"),
            *("--tmpfs", "/run", "--tmpfs", "/tmp"),
            *("--volume", f"{ROOT / 'deploy/systemd/tidelog.service'}:{unit}:ro", machine),
            *("bash", "-c", f"{init}; exec /lib/systemd/systemd --unit=multi-user.target"),
        )
        wait_for(
            lambda: docker("exec", name, "systemctl", "start", "tidelog", check=False).returncode == 0,
            "systemd",
            DEADLINE_SECONDS,
        )
        assert run("systemd-analyze verify tidelog.service") == ""
        wait_for(is_serving, "the broker", DEADLINE_SECONDS)
        assert "stored 10 records" in run("seq 10 | tidelog produce --create-topic orders")
        run("systemctl kill --signal=KILL tidelog")
        wait_for(is_serving, "the broker after its end", DEADLINE_SECONDS)
        assert run("tidelog consume orders --from-beginning --max-messages 10").split() == [
            str(each) for each in range(1, 11)
        ]
        assert run("systemctl show --property=NRestarts tidelog") == "NRestarts=1"
        run("echo TIDELOG_PROCESSES=2 > /etc/tidelog.env; systemctl restart tidelog")
        wait_for(is_serving, "two processes", DEADLINE_SECONDS)
        assert run("tidelog consume orders --from-beginning --max-messages 10").split() == [
            str(each) for each in range(1, 11)
        ]
        run("systemctl stop tidelog")
        assert run("systemctl show --property=Result tidelog") == "Result=success"
    finally:
        docker("rm", "--force", "--volumes", name)
