"""What people do with the image: first commands, clients on the host and in the network, folders of the host.

`make container` runs it; it needs a container engine.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocks import commands, fits
from tests.container.containers import container, new_name, new_volume
from tests.container.engine import docker
from tests.container.images import broker_image, pipeline_image
from tests.tidy.house import ROOT

_USER = 10001
_OTHER_USER = 12345
_MOST_BYTES = 150_000_000
_LISTENERS = {
    "TIDELOG_LISTENERS": "OUTSIDE://0.0.0.0:9092,INSIDE://0.0.0.0:29092",
    "TIDELOG_LISTENER_SECURITY_PROTOCOL_MAP": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
}


@pytest.fixture(scope="module")
def image() -> str:
    return broker_image()


@pytest.fixture
def network() -> Iterator[str]:
    name = new_name()
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)


def run(image: str, *command: str) -> str:
    return docker("run", "--rm", "--no-healthcheck", *command[:-1], image, *command[-1].split()).stdout


def test_the_image_holds_what_the_broker_needs_and_no_more(image: str) -> None:
    assert int(docker("image", "inspect", "--format", "{{.Size}}", image).stdout) < _MOST_BYTES
    tools = "pip pip3 uv gcc cc make git strip perl apt-get"
    found = docker("run", "--rm", "--entrypoint", "bash", image, "-c", f"type -P {tools}", check=False)
    assert found.stdout == ""
    packages = run(image, "--entrypoint", "ls", "/opt/tidelog/lib/python3.13/site-packages")
    assert not re.search(r"^(pip|uv|pytest|hypothesis|tests|mypy)\b", packages, re.MULTILINE)
    folders = docker("run", "--rm", "--entrypoint", "ls", image, "-A", "/opt/tidelog").stdout
    assert folders.split() == ["bin", "lib", "lib64", "pyvenv.cfg"]


def test_the_labels_say_what_the_image_is(image: str) -> None:
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", image).stdout)
    told = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert run(image, "--version") == f"tidelog {told['version']}\n"
    assert told["title"] == "Tidelog"
    assert told["licenses"] == "Apache-2.0"
    assert f"DEBIAN_IMAGE={told['base.name'].rpartition('/')[2]}\n" in (ROOT / "Dockerfile").read_text()
    assert told["revision"] == ""


_USED = """
import zoneinfo
from tidelog.schemas.avro import avro_schema, read_value
schema = avro_schema('{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}')
print(read_value(schema, b"\x54", 0, 0, is_fast=True), zoneinfo.ZoneInfo("Asia/Kolkata"))
import cryptography.hazmat.primitives.asymmetric.ec, re2, uvloop, cramjam, crc32c
"""


def test_what_was_taken_out_of_the_image_is_not_missed(image: str) -> None:
    """Avro without the compiled half of fastavro, stripped libraries, time zones, authorities, packages that
    scanners find."""
    told = docker("run", "--rm", "--entrypoint", "python", image, "-c", _USED).stdout
    assert told == "{'n': 42} Asia/Kolkata\n"
    count = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'] > 100)"
    assert docker("run", "--rm", "--entrypoint", "python", image, "-c", count).stdout == "True\n"
    packages = docker("run", "--rm", "--entrypoint", "dpkg-query", image, "--show").stdout
    assert re.search(r"^libssl3", packages, re.MULTILINE)
    assert not re.search(r"^(perl|apt)", packages, re.MULTILINE)


def test_the_packages_are_built_for_each_platform_of_the_bake_file() -> None:
    bake = json.loads((ROOT / "docker-bake.json").read_text())
    assert bake["group"]["default"]["targets"] == ["broker"]
    names = {"linux/amd64": "x86_64-unknown-linux-gnu", "linux/arm64": "aarch64-unknown-linux-gnu"}
    assert bake["target"]["broker"]["platforms"] == list(names)
    compiled = ["pip", "compile", "--quiet", "--only-binary", ":all:", "--constraint", "requirements.lock"]
    for name in names.values():
        command = [*compiled, "--python-platform", name, "--python-version", "3.13", "pyproject.toml"]
        subprocess.run([Path(sys.executable).with_name("uv"), *command], cwd=ROOT, check=True)


def test_the_first_commands_of_the_readme_work_against_the_container(image: str, tmp_path: Path) -> None:
    first = (ROOT / "README.md").read_text().split("```console\n")[2].split("```")[0]
    with container(image) as broker:
        for command, expected in commands(first):
            shown = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=os.environ
                | {
                    "TIDELOG_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                },
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert fits(shown.stdout, expected), shown


def test_the_environment_of_kafkas_image_serves_and_topics_exist_when_the_container_is_healthy(
    image: str,
) -> None:
    environment = {
        "KAFKA_NODE_ID": "7",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_NUM_PARTITIONS": "3",
        "TIDELOG_TOPICS": "orders,clicks:12",
    }
    with container(image, environment=environment) as broker:
        broker.wait_for_health("healthy")
        command = [sys.executable, "-m", "tidelog", "topic", "describe", "-b", broker.bootstrap_servers]
        for name, count in (("orders", 3), ("clicks", 12)):
            shown = subprocess.run([*command, name, "--json"], check=True, capture_output=True, text=True)
            assert len(json.loads(shown.stdout)["partitions"]) == count
        ignored = {
            each["variable"] for each in broker.events() if each["event"] == "unknown_variable_ignored"
        }
        assert ignored == {"KAFKA_PROCESS_ROLES", "KAFKA_CONTROLLER_LISTENER_NAMES"}


def test_clients_on_the_host_and_in_the_network_use_one_broker_at_once(image: str, network: str) -> None:
    listeners = _LISTENERS | {
        "TIDELOG_ADVERTISED_LISTENERS": "OUTSIDE://localhost:{port},INSIDE://broker:29092"
    }
    with container(image, "--network", network, "--network-alias", "broker", environment=listeners) as broker:
        host = [str(Path(sys.executable).parent / "tidelog")]
        inside = ["docker", "run", "--rm", "--interactive", "--no-healthcheck", "--network", network, image]
        servers = {"host": (host, broker.bootstrap_servers), "inside": (inside, "broker:29092")}
        for name, (program, address) in servers.items():
            subprocess.run(
                [*program, "produce", "--create-topic", "shared", "-b", address],
                input=f"from {name}\n",
                text=True,
                check=True,
            )
        for program, address in servers.values():
            read = ["consume", "shared", "--from-beginning", "--max-messages", "2", "-b", address]
            shown = subprocess.run([*program, *read], check=True, capture_output=True, text=True).stdout
            assert sorted(shown.split("\n")) == ["", "from host", "from inside"]


def test_two_processes_serve_over_the_kill_of_one_and_one_process_has_their_records(image: str) -> None:
    def tidelog(*command: str, lines: str = "") -> str:
        program = [sys.executable, "-m", "tidelog", *command, "-b", broker.bootstrap_servers]
        return subprocess.run(program, input=lines, check=True, capture_output=True, text=True).stdout

    def read() -> list[int]:
        read = ("consume", "orders", "--from-beginning", "--max-messages", "200")
        return sorted(map(int, tidelog(*read).split()))

    with new_volume() as volume:
        several = _LISTENERS | {
            "TIDELOG_PROCESSES": "2",
            "TIDELOG_INTER_BROKER_LISTENER_NAME": "INSIDE",
            "TIDELOG_ADVERTISED_LISTENERS": "OUTSIDE://localhost:{port},INSIDE://localhost:29092",
        }
        with container(image, volume=volume, environment=several, processes=2) as broker:
            tidelog("topic", "create", "orders", "--partitions", "4")
            tidelog("produce", "orders", lines="".join(f"{n}\n" for n in range(100)))
            broker.exec("bash", "-c", f"kill -9 {broker.pid_of('1')}")
            tidelog("produce", "orders", lines="".join(f"{n}\n" for n in range(100, 200)))
            assert read() == list(range(200))
            broker.wait_for_health("healthy")
            docker("stop", broker.name)
            assert broker.inspect(".State.ExitCode") == "0"
        with container(image, volume=volume) as broker:
            assert read() == list(range(200))


def test_a_folder_of_the_host_must_belong_to_the_user_of_the_container(image: str, tmp_path: Path) -> None:
    with container(image, volume=str(tmp_path), wait=False) as broker:
        assert broker.wait_for_end() == 1
        [event] = broker.events()
        assert event["event"] == "broker_not_started"
        assert "Permission denied; data.dir must be a folder that can be written" in event["error"]
    os.chown(tmp_path, _USER, _USER)
    with container(image, volume=str(tmp_path)):
        assert (tmp_path / "cluster.db").exists()


def test_another_user_id_serves_from_a_folder_of_its_own(image: str, tmp_path: Path) -> None:
    os.chown(tmp_path, _OTHER_USER, _OTHER_USER)
    with container(image, "--user", f"{_OTHER_USER}:{_OTHER_USER}", volume=str(tmp_path)) as broker:
        broker.wait_for_health("healthy")
    assert (tmp_path / "cluster.db").stat().st_uid == _OTHER_USER


def test_logs_are_lines_of_json_whatever_the_time_zone_and_locale(image: str) -> None:
    environment = {"TZ": "Asia/Kolkata", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR"}
    with container(image, environment=environment) as broker:
        docker("stop", broker.name)
        events = broker.events()
    assert [each["event"] for each in events] == ["broker_started", "broker_stopping", "broker_stopped"]
    assert all(each["timestamp"].endswith("Z") for each in events)


def test_a_job_of_the_pipeline_reads_a_topic_from_its_own_image(image: str, network: str) -> None:
    advertised = {"TIDELOG_ADVERTISED_LISTENERS": "PLAINTEXT://broker:9092"}
    options = ("--network", network, "--network-alias", "broker")
    with container(image, *options, environment=advertised) as broker:
        made = broker.exec("bash", "-c", "seq 1000 | tidelog produce --create-topic orders -b broker:9092")
        assert "stored 1000 records in orders" in made.replace(",", "")
        told = run(pipeline_image(), "--network", network, "pipeline audit orders -b broker:9092")
    assert re.search(r"1,?000 records", told), told
