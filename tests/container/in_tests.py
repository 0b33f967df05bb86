"""`tidelog.testcontainers` does what docs/containers.md says, also with Ryuk, which removes what killed tests
leave behind.

`make container` runs it; it needs a container engine, the package index of Python and the image of Ryuk.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.container.engine import docker
from tests.container.images import broker_image, had
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.version import VERSION

_PROGRAMS = ROOT / "tests" / "container" / "programs"
_WITHOUT_RYUK = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
_REUSE = {"TESTCONTAINERS_REUSE_ENABLE": "true"}
_AT_ONCE = {"RYUK_RECONNECTION_TIMEOUT": "1s"}
_RYUK = "testcontainers/ryuk:0.8.1"


@pytest.fixture(scope="module")
def ryuk() -> str:
    assert had(_RYUK), f"{_RYUK} cannot be pulled: build it from https://github.com/testcontainers/moby-ryuk"
    return _RYUK


@pytest.mark.parametrize("name", ["orders", "faults"])
def test_the_programs_pass(tools: dict[str, str], name: str, tmp_path: Path) -> None:
    folder = ROOT / "examples" if name == "orders" else _PROGRAMS
    program = (folder / f"{name}_with_testcontainers.py").read_text()
    test = tmp_path / f"test_{name}.py"
    test.write_text(program.replace(f"tidelog:{VERSION}", broker_image()))
    command = [sys.executable, "-m", "pytest", "-q", str(test)]
    subprocess.run(command, env=tools | _WITHOUT_RYUK, cwd=tmp_path, check=True, timeout=DEADLINE_SECONDS)


@contextmanager
def process(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """One that has a container, the id of this, and the address of its broker."""
    command = [sys.executable, str(_PROGRAMS / "process_with_testcontainers.py"), broker_image()]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        container, address = running.stdout.readline().split()
        yield running, container, address
        running.stdin.close()


def exists(container: str) -> bool:
    return docker("inspect", container, check=False).returncode == 0


def tidelog(*arguments: str, given: str = "") -> str:
    return subprocess.check_output([sys.executable, "-m", "tidelog", *arguments], input=given, text=True)


def test_ryuk_removes_the_container_of_a_test_that_was_killed(tools: dict[str, str], ryuk: str) -> None:
    with process(tools | _AT_ONCE) as (running, container, _):
        assert exists(container)
        running.kill()
    wait_for(lambda: not exists(container), "Ryuk to remove the container", DEADLINE_SECONDS)


def test_a_reused_container_stays_with_its_records_also_after_a_kill(
    tools: dict[str, str], ryuk: str
) -> None:
    with process(tools | _AT_ONCE | _REUSE) as (running, container, address):
        tidelog("produce", "orders", "-b", address, given="kept\n")
        running.kill()
    try:
        running_ryuk = ("ps", "--quiet", "--filter", f"ancestor={ryuk}")
        wait_for(lambda: not docker(*running_ryuk).stdout, "the end of Ryuk", DEADLINE_SECONDS)
        for _ in range(2):
            with process(tools | _WITHOUT_RYUK | _REUSE) as (_, again, address):
                assert again == container
                read = tidelog("consume", "orders", "--from-beginning", "--max-messages", "1", "-b", address)
                assert read == "kept\n"
        docker("stop", container)
        with process(tools | _WITHOUT_RYUK | _REUSE) as (_, new, address):
            assert new != container
            assert tidelog("topic", "list", "-b", address) == "orders\n"
            container = new
        assert exists(container)
    finally:
        docker("rm", "--force", "--volumes", container)


def test_a_container_is_not_reused_where_the_machine_does_not_permit_it(tools: dict[str, str]) -> None:
    with process(tools | _WITHOUT_RYUK) as (_, container, _):
        assert re.fullmatch("[0-9a-f]{64}", container)
    assert not exists(container)
