"""The wheel is one package, `tidelog`, and works in a project that has packages called broker and client."""

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from faults.process import BrokerProcess
from tests.spark.small import JAVA_OPTIONS, SMALL, as_flags
from tests.tidy.house import ROOT, WHEEL_PACKAGES

_SECONDS = 240
_PROJECT_TEST = """
import importlib

import pytest
from tidelog import Admin, Consumer, Producer, TopicPartition


@pytest.mark.parametrize("name", {rooms!r})
def test_the_projects_own_package_is_found(name):
    assert importlib.import_module(name).OWNER == "the project"


async def _there_and_back(servers, topic):
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"order 1")
    async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        return (await consumer.getone()).value


def test_the_fixtures_give_a_broker(tidelog_broker, tidelog_topic):
    import asyncio

    assert asyncio.run(_there_and_back(tidelog_broker.bootstrap_servers, tidelog_topic)) == b"order 1"
"""
_PRODUCER = """
import asyncio
import sys

from tidelog import Producer


async def main():
    async with Producer(bootstrap_servers=sys.argv[1]) as producer:
        for number in range(100):
            await producer.send("orders", b"%d" % number)


asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; what the wheel needs is found beside this Python."""
    folder = tmp_path_factory.mktemp("environment")
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True, capture_output=True)
    python = folder / "bin" / "python"
    install = [*uv, "pip", "install", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_paths()["purelib"])
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in WHEEL_PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text('OWNER = "the project"\n')
    (folder / "test_project.py").write_text(_PROJECT_TEST.format(rooms=WHEEL_PACKAGES))
    (folder / "produce.py").write_text(_PRODUCER)
    return folder


def run(project: Path, *command: object) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=project,
        env=environment | {"JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def test_the_wheel_holds_one_package_with_every_room(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tidelog"}
    for room in WHEEL_PACKAGES:
        inside = {str(path.relative_to(ROOT)) for path in (ROOT / room).rglob("*.py")}
        assert {f"tidelog/{name}" for name in inside} <= set(names)
    assert "tidelog/py.typed" in names


def test_a_project_with_packages_of_those_names_runs_its_own_pytest(project: Path, python: Path) -> None:
    shown = run(project, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"{len(WHEEL_PACKAGES) + 1} passed" in shown.stdout


async def test_its_command_its_producer_and_its_spark_job_work_there(
    project: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidelog = python.with_name("tidelog")
    monkeypatch.chdir(project)
    broker = BrokerProcess(tmp_path / "data", command=[str(tidelog), "serve"])
    await broker.start()
    try:
        servers = f"127.0.0.1:{broker.port}"
        audit = ("pipeline", "audit", "orders", "-b", servers, "--master", "local[1]", *as_flags(SMALL))
        for command in (
            (tidelog, "topic", "create", "orders", "-b", servers),
            (python, "produce.py", servers),
            (python, "-m", "tidelog", *audit),
        ):
            shown = await asyncio.to_thread(run, project, *command)
            assert shown.returncode == 0, shown.stdout + shown.stderr
        assert json.loads(shown.stdout.splitlines()[-1])["records"] == 100
    finally:
        await broker.terminate()
