"""librdkafka's own tests of its share consumer, as `make frameworks` runs them over one broker and three.

Their source comes with an npm package; it is compiled once and kept below the virtual environment. Where npm
or a compiler is missing, this fails and says so. Each is a process of its own; a few run at a time, because
they mostly wait.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.deadline import deadline
from tests.several.served import ETCD, ONE
from tests.spark.brokers import running_cluster

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
VERSION = "2.15.1"
"""Of the librdkafka in it, as the tests say."""
_INTEGRITY = "sha512-KVePUBn21EqCVP9mfxzEuM3SYJHHEF7X+iiC2e43QQgDSyEaksInmCGooT3w5q+cNAdkSCrK71j0ICfqoSqZLw=="
_FOLDER = Path(sys.prefix) / "frameworks-librdkafka" / PACKAGE.rpartition("@")[2]
_TESTS = (
    *("0174_share_consumer_concurrency", "0170_share_consumer_subscription", "0171_share_consumer_consume"),
    *("0172_share_consumer_acknowledge", "0173_share_consumer_commit_async", "0175_share_consumer_groups"),
    *("0176_share_consumer_commit_sync", "0177_share_consumer_transactions", "0178_share_consumer_close"),
    *("0180_share_consumer_config", "0181_share_consumer_topic_delete", "0184_share_consumer_topic_recreate"),
    "0185_share_consumer_max_poll_interval",
)
"""Those of a broker of Kafka 4.2 or later, the longest first."""
_OF_SEVERAL = ("0179_share_consumer_destroy",)
"""They take the records of two partitions for two answers. One broker gives both at once, except for Kafka,
which answers a first request with the partition whose state it has read first."""
_AT_ONCE = 4
_SECONDS = 1800
# The first two are those of librdkafka's own clusters: a test deletes a topic while it writes to it.
_SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "group.share.min.record.lock.duration.ms": "1000",
    "default.replication.factor": "1",
}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the program."""
    if not (_FOLDER / "complete").exists():
        with deadline("librdkafka's tests, fetched and compiled", _SECONDS):
            _compile()
    return _source() / "tests"


def _source() -> Path:
    return _FOLDER / "package" / "deps" / "librdkafka"


def _compile() -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    npm = shutil.which("npm")
    assert npm is not None, f"{PACKAGE} was left out: it needs npm"
    packed = json.loads(_run(npm, "pack", PACKAGE, "--json"))
    assert packed[0]["integrity"] == _INTEGRITY
    with tarfile.open(_FOLDER / packed[0]["filename"]) as archive:
        archive.extractall(_FOLDER, filter="data")
    without = ("--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-lz4-ext")
    _run("bash", "./configure", *without, folder=_source())
    made = (_source() / "config.h").read_text()
    assert "#define WITH_ZSTD 1" in made, "librdkafka's tests were left out: apt-get install libzstd-dev"
    _run("make", "-j2", "libs", folder=_source())
    _run("make", "-j2", "-C", "tests", "test-runner", folder=_source())
    (_FOLDER / "complete").touch()


def _run(*command: str, folder: Path = _FOLDER) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def _play(
    programs: Path, bootstrap_servers: str, folder: Path, name: str
) -> subprocess.CompletedProcess[str]:
    # As if its machine were thrice as slow: it has two cores, for the brokers and the tests.
    lines = (f"bootstrap.servers={bootstrap_servers}", "test.timeout.multiplier=3", "")
    (folder / f"{name}.conf").write_text("\n".join(lines))
    settings = {
        "TESTS": name,
        "TEST_KAFKA_VERSION": "4.2.0",
        "RDKAFKA_TEST_CONF": str(folder / f"{name}.conf"),
        "LD_LIBRARY_PATH": os.pathsep.join(str(programs.parent / each) for each in ("src", "src-cpp")),
    }
    return subprocess.run(
        ["./test-runner", "-p1", "-L", "-K"],
        cwd=programs,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


@pytest.fixture(scope="module", params=(ONE, ETCD))
def played(
    request: pytest.FixtureRequest, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[subprocess.CompletedProcess[str]]]]:
    """What each program will have printed."""
    folder = tmp_path_factory.mktemp("librdkafka")
    names = _TESTS if request.param == ONE else (*_TESTS, *_OF_SEVERAL)
    with running_cluster(request.param, folder, **_SETTINGS) as brokers, ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {name: pool.submit(_play, programs, brokers.bootstrap_servers, folder, name) for name in names}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", _TESTS)
def test_librdkafka_passes_its_own_test(
    played: Mapping[str, Future[subprocess.CompletedProcess[str]]], name: str
) -> None:
    _check(played[name], name)


@pytest.mark.parametrize("name", _OF_SEVERAL)
@pytest.mark.parametrize("played", [ETCD], indirect=True)
def test_librdkafka_passes_its_own_test_with_several_brokers(
    played: Mapping[str, Future[subprocess.CompletedProcess[str]]], name: str
) -> None:
    _check(played[name], name)


def _check(playing: Future[subprocess.CompletedProcess[str]], name: str) -> None:
    with deadline(f"librdkafka's test {name}", _SECONDS):
        done = playing.result()
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-12000:]
    assert f"Test {name} PASSED" in done.stdout + done.stderr
