"""A release is an sdist and the wheel that is built from it: it serves in a fresh environment."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conformance.commands import next_line
from tidelog.version import VERSION

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
CLIENT = """
import asyncio, sys
from tidelog import Consumer, Producer
from tidelog.version import VERSION

async def main():
    async with Producer(bootstrap_servers=sys.argv[1]) as producer:
        await producer.send_and_wait("releases", VERSION.encode())
    async with Consumer("releases", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest") as consumer:
        print((await consumer.getone()).value.decode())

asyncio.run(main())
"""


def uv(*arguments: str | Path) -> None:
    done = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files; `make release` names its own."""
    if folder := os.environ.get("DIST"):
        return Path(folder)
    made = tmp_path_factory.mktemp("dist")
    uv("build", "--no-build-isolation", "--python", sys.executable, "--out-dir", made, ROOT)
    return made


def test_both_files_contain_each_file_of_the_package_once_and_no_links(dist: Path) -> None:
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    tracked = subprocess.run(
        ["git", "ls-files", "tidelog"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = sorted(tracked.stdout.split())
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert all(each.isfile() for each in members)
    names = sorted(each.name.partition("/")[2] for each in members)
    assert [each for each in names if each.startswith("tidelog/")] == expected
    assert {each.partition("/")[0] for each in names} == {
        "tidelog", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore",
    }  # fmt: skip
    packed = zipfile.ZipFile(wheel).namelist()
    assert sorted(each for each in packed if each.startswith("tidelog/")) == expected


def test_the_wheel_alone_serves_produces_and_consumes(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    environment = tmp_path / "environment"
    uv("venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", wheel)
    command = [environment / "bin" / "tidelog", "serve", "--port", "0", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", tmp_path / "data"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as broker:
        try:
            port = json.loads(next_line(broker))["port"]
            client = subprocess.run(
                [python, "-c", CLIENT, f"127.0.0.1:{port}"], cwd=tmp_path, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert (client.stdout, client.stderr) == (f"{VERSION}\n", "")
        finally:
            broker.terminate()


def test_the_sbom_names_what_a_broker_needs_as_the_lock_file_pins_it(tmp_path: Path) -> None:
    subprocess.run(["make", "--silent", "sbom", f"DIST={tmp_path}"], cwd=ROOT, check=True)
    written = json.loads((tmp_path / "tidelog.cdx.json").read_text())
    component = written["metadata"]["component"]
    assert (component["name"], component["version"]) == ("tidelog", VERSION)
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    parts = {each["name"]: each for each in written["components"]}
    assert {"aiohttp", "cramjam", "msgspec", "uvloop"} <= parts.keys()
    assert not {"pyspark", "pytest", "mypy"} & parts.keys()
    for name, each in parts.items():
        assert each["version"] == pinned[name]
        assert each["externalReferences"][0]["hashes"], name
