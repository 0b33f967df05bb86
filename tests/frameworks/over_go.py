"""franz-go's own test of consumer groups, with connections that are cut, as `make frameworks` runs it.

It is not in `make test`, because it needs Go and its module proxy. Where they are not reached, it fails and
says so.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.deadline import deadline
from tests.go_programs import SECONDS, built
from tests.several.served import ONE, PROCESSES
from tests.spark.brokers import running_cluster

MODULE = "github.com/twmb/franz-go@v1.22.2"
_SUM = "h1:EdwIHGzD/4mgCpl/sNS0C74JYn6cL/r2KYS+8UC96Ww="
# About 40 s on two cores; with them a member was fenced in one of three runs, and joined again.
_RECORDS = 100_000
_WAYS = 6
"""Assignors, protocols and static members: each is a subtest."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with deadline("the build of franz-go", SECONDS):
        return built(tmp_path_factory.mktemp("go") / "kgo.test", MODULE, _SUM, "test", "-c", "./pkg/kgo")


@pytest.mark.parametrize("way", [ONE, PROCESSES])
def test_groups_lose_and_repeat_nothing_while_connections_are_cut(
    program: Path, tmp_path: Path, way: str
) -> None:
    """Each connection of a client lives for 0.5 to 1.5 s, while members of a chain of groups come and go.

    Delivery is at least once: what a member read and had not committed when it was fenced is read again, and
    the test calls that "saw double offset". So it needs a machine on which answers take far less time than a
    connection lives, with one broker as well. It is a fault of the broker if an offset is fetched that is
    lower than the last acknowledged commit: KGO_LOG_LEVEL=debug shows both.
    """
    with deadline("franz-go's test", SECONDS), running_cluster(way, tmp_path) as broker:
        settings = {
            "KGO_SEEDS": broker.bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(_RECORDS),
            "KGO_TEST_CHAOS": "1",
            "KGO_LOG_LEVEL": "none",
        }
        done = subprocess.run(
            [program, "-test.v", "-test.run=^TestGroupETL$", f"-test.timeout={SECONDS}s"],
            cwd=tmp_path,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert done.stdout.count("--- PASS: TestGroupETL/") == _WAYS
