"""What docs/containers.md offers to copy does what it says, as far as one machine can find out.

`make container` runs it; it needs a container engine and the package index of Python.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.container.compose import project
from tests.container.containers import new_name, new_volume
from tests.container.engine import docker
from tests.container.images import base_image, broker_image, built
from tests.ports import free_port
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for

_DOCUMENT = (ROOT / "docs" / "containers.md").read_text()
_NAMED = "tidelog:0.1.0"
_TOOLS = ("kubernetes-validate==1.37.0", "check-jsonschema==0.39.0", "testcontainers==4.15.0")
_KUBERNETES = ROOT / "deploy/kubernetes/tidelog.yml"
_OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(_KUBERNETES.read_text()))


def block_below(heading: str) -> str:
    """The first block of YAML below a heading of the page."""
    [text] = re.findall(rf"^## {heading}$.*?^```yaml\n(.*?)^```", _DOCUMENT, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which Python finds the tools beside what is installed."""
    folder = tmp_path_factory.mktemp("tools")
    uv = Path(sys.executable).parent / "uv"
    install = [str(uv), "pip", "install", "--python", sys.executable, "--target", str(folder), *_TOOLS]
    subprocess.run(install, check=True)
    return os.environ | {"PYTHONPATH": str(folder)}


def python(environment: dict[str, str], *arguments: str, cwd: Path = ROOT) -> None:
    command = [sys.executable, *arguments]
    subprocess.run(command, env=environment, cwd=cwd, check=True, timeout=DEADLINE_SECONDS)


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


def test_the_workflow_is_one_of_github(tools: dict[str, str], tmp_path: Path) -> None:
    workflow = tmp_path / "test.yml"
    workflow.write_text(block_below("In GitHub Actions"))
    python(tools, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(workflow))


def test_the_example_with_testcontainers_passes(tools: dict[str, str], tmp_path: Path) -> None:
    program = ROOT / "tests/container/programs/orders_with_testcontainers.py"
    port = free_port()
    text = program.read_text().replace(_NAMED, broker_image()).replace("localhost:9092", f"localhost:{port}")
    advertised = f'"TIDELOG_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:{port}"'
    ports = f".with_bind_ports(9092, {port}).with_env({advertised})"
    test = tmp_path / "test_orders.py"
    test.write_text(text.replace(".with_bind_ports(9092, 9092)", ports))
    assert ports in test.read_text()
    # Its helper that removes what a killed test leaves behind is an image of a registry.
    environment = tools | {"TESTCONTAINERS_RYUK_DISABLED": "true"}
    python(environment, "-m", "pytest", "-q", str(test), cwd=tmp_path)


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_each_object_has_the_schema_of_kubernetes(tools: dict[str, str], version: str) -> None:
    python(tools, "-m", "kubernetes_validate", "--strict", "--kubernetes-version", version, str(_KUBERNETES))


def test_the_objects_of_kubernetes_fit_each_other() -> None:
    by_kind = {each["kind"]: each["spec"] for each in _OBJECTS}
    stateful = by_kind["StatefulSet"]
    labels = stateful["template"]["metadata"]["labels"]
    assert by_kind["Service"]["selector"] == labels == stateful["selector"]["matchLabels"]
    assert by_kind["PodDisruptionBudget"]["selector"]["matchLabels"] == labels
    [claim] = stateful["volumeClaimTemplates"]
    [mount] = stateful["template"]["spec"]["containers"][0]["volumeMounts"]
    assert claim["metadata"]["name"] == mount["name"]


def test_the_container_of_the_pod_becomes_ready_by_its_probes() -> None:
    pod = next(each for each in _OBJECTS if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    [spec] = pod["containers"]
    assert spec["image"] == _NAMED
    environment = {"NAMESPACE": "shop"}
    for each in spec["env"][1:]:
        environment[each["name"]] = each["value"].replace("$(NAMESPACE)", environment["NAMESPACE"])
    user = pod["securityContext"]
    memory = int(spec["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    port = free_port()
    name = new_name()
    with new_volume() as volume:
        try:
            docker(
                *("run", "--detach", "--name", name, "--read-only", "--cap-drop", "ALL"),
                *("--security-opt", "no-new-privileges", "--memory", str(memory)),
                *("--user", f"{user['runAsUser']}:{user['runAsGroup']}"),
                *("--volume", f"{volume}:{spec['volumeMounts'][0]['mountPath']}"),
                *(part for pair in environment.items() for part in ("--env", "=".join(pair))),
                *("--publish", f"127.0.0.1:{port}:{spec['ports'][1]['containerPort']}", broker_image()),
            )
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                address = f"http://127.0.0.1:{port}{spec[probe]['httpGet']['path']}"
                curl = ["curl", "--silent", "--fail", address]
                wait_for(
                    lambda curl=curl: subprocess.run(curl, check=False).returncode == 0,  # type: ignore[misc]
                    address,
                    DEADLINE_SECONDS,
                )
            [started] = map(json.loads, docker("logs", name).stdout.splitlines())
            assert started["advertised_listeners"] == ["PLAINTEXT://tidelog.shop.svc:9092"]
        finally:
            docker("rm", "--force", "--volumes", name)


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
        run("systemctl stop tidelog")
        assert run("systemctl show --property=Result tidelog") == "Result=success"
    finally:
        docker("rm", "--force", "--volumes", name)
