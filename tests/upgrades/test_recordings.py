"""Brokers open what each recorded version left: all that clients found is there, and they go on."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.upgrades.recording import COMMITS, FOLDER, ONE, SEVERAL, addresses, cluster, command_of, described
from tidelog.client import Consumer, Producer, ProducerSession, TopicPartition


async def go_on(address: str, session: dict[str, object], committed: dict[str, int]) -> None:
    """A saved session continues, a transactional id, and a group."""
    async with Producer(bootstrap_servers=address, session=ProducerSession.from_dict(session)) as producer:
        stored = [(await producer.send_and_wait("resumed", value)).offset for value in (b"1", b"2")]
    assert stored == [-1, 2]
    async with Producer(bootstrap_servers=address, transactional_id="writer") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("transacted", b"3")
        await producer.send_offsets_to_transaction({TopicPartition("plain", 0): 4}, "by-writer")
        await producer.commit_transaction()
    async with Consumer("plain", bootstrap_servers=address, group_id="readers") as consumer:
        record = await consumer.getone()
        assert record.offset == committed[f"plain-{record.partition}"]


def test_versions_are_recorded() -> None:
    assert len(COMMITS) >= 2


def test_a_version_runs_from_its_own_package(tmp_path: Path) -> None:
    package = tmp_path / "tidelog" / "broker"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text("print(__file__)")
    ran = subprocess.run(command_of(tmp_path), capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(package / "__main__.py")


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("kind", [ONE, pytest.param(SEVERAL, marks=pytest.mark.needs_etcd)])
async def test_what_a_version_recorded_is_opened_and_continued(
    kind: str, commit: str, tmp_path: Path
) -> None:
    with tarfile.open(FOLDER / f"{commit}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / kind
    expected = json.loads((folder / "expected.json").read_text())
    async with cluster(folder, kind, expected["keys"]) as (brokers, _):
        address = addresses(brokers)
        assert await described(address) == expected["described"]
        await go_on(address, expected["session"], dict(expected["described"]["readers"]))
        assert [each for broker in brokers for each in broker.events("partition_offline")] == []
        for broker in brokers:
            assert await broker.terminate() == 0
    if kind == ONE:
        # What the new version wrote over it is read again.
        async with cluster(folder, kind) as (brokers, _):
            found = await described(addresses(brokers))
            assert found["transacted read_committed"][-1][-1] == "3"
            assert found["by-writer"] == [["plain-0", 4]]
