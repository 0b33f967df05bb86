"""One broker becomes the first of a cluster: its catalog moves to an etcd that asks for certificates.

Follows the runbooks of docs/cluster.md.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faults.etcd import EtcdMembers, running_etcd
from tests.certificates import Certificates
from tidelog.broker.app import Broker, StartError
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder import etcd_catalogs
from tidelog.broker.data_folder.verification import Finding, Severity, verify_folder
from tidelog.broker.storage.disk import Disk
from tidelog.cli.cluster import app
from tidelog.client import Admin, Consumer, NewTopic, Producer

TOPIC = "t"


class World:
    """An etcd of one member with `--client-cert-auth`, and the broker."""

    def __init__(self, folder: Path, members: EtcdMembers, certificates: Certificates, client: str) -> None:
        self.folder = folder
        self.members = members
        self.data_dir = folder / "data"
        self.settings = {
            "node.id": 1,
            "data.dir": str(self.data_dir),
            "cluster.store": f"etcd:{members.endpoints[0]}",
            "cluster.store.ssl.truststore.location": certificates.authority,
            "cluster.store.ssl.keystore.location": client,
            "port": 0,
            "http.port": -1,
        }
        self.file = folder / "broker.toml"
        self.file.write_text("".join(f"{name!r} = {value!r}\n" for name, value in self.settings.items()))

    def config(self, **more: object) -> BrokerConfig:
        return BrokerConfig.load({}, environ={}, file=self.file).with_settings(more)

    async def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code and the output of a command of `tidelog cluster`."""
        arguments = (*arguments, "--config", str(self.file))
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        return result.exit_code, result.output + str(result.exception or "")

    async def restart_etcd_with(self, data: Path) -> None:
        """As a restore of a backup."""
        await self.members.kill(0)
        shutil.rmtree(self.folder / "m0")
        shutil.copytree(data, self.folder / "m0")
        await self.members.start(0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    certificates = Certificates(tmp_path)
    client = certificates.client("broker-1")
    more = [f"--cert-file={certificates.keystore}", f"--key-file={certificates.keystore}"]
    more += ["--client-cert-auth", f"--trusted-ca-file={certificates.authority}"]
    async with running_etcd(tmp_path, 1, more, "https", certificates.context(client)) as members:
        stranger = EtcdClient(members.endpoints, ssl_context=certificates.context(), patience_s=0)
        with pytest.raises(StoreError):
            await stranger.call("/v3/kv/range", {"key": "AA=="})
        await stranger.close()
        made = World(tmp_path, members, certificates, client)
        await lone_broker_with_records(made)
        yield made


async def lone_broker_with_records(world: World) -> None:
    async with await Broker.start(world.config(**{"cluster.store": ""})) as broker:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 1, 1, {"retention.ms": "7777"})])
        async with Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
            await producer.send(TOPIC, b"before")


async def producer_id_of_a_new_producer(broker: Broker) -> int:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send(TOPIC, b"after")
    return broker.services.partitions.highest_producer_id


async def test_a_broker_moves_to_etcd_and_a_restored_etcd_gives_no_producer_id_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Killed before etcd has it: neither catalog can be used, and the command finishes what it began.
    with monkeypatch.context() as killed:
        killed.setattr(etcd_catalogs.EtcdStore, "begin_with", _ends_here)
        with pytest.raises(KeyboardInterrupt):
            await etcd_catalogs.move_to_etcd(world.config(), Disk())
    with pytest.raises(StartError, match="move-to-etcd"):
        await Broker.start(world.config(**{"cluster.store": ""}))
    with pytest.raises(StartError, match="etcd has no catalog"):
        await Broker.start(world.config())
    assert await world.run("move-to-etcd") == (
        0,
        "moved. Now start the broker with the same settings, then the others\n",
    )
    assert "nothing to do" in (await world.run("move-to-etcd"))[1]
    await world.members.kill(0)
    shutil.copytree(world.folder / "m0", world.folder / "backup")
    await world.members.start(0)

    async with await Broker.start(world.config()) as broker:
        topic = broker.services.catalog.topic(TOPIC)
        assert topic is not None
        assert topic.configs["retention.ms"] == "7777"
        async with Consumer(
            TOPIC, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"before"
        known = await producer_id_of_a_new_producer(broker)
    findings: list[Finding] = []
    assert verify_folder(world.data_dir, findings.append).damage == 0
    assert [each.severity for each in findings] == [Severity.WARNING]
    with pytest.raises(StartError, match="moved to etcd"):
        await Broker.start(world.config(**{"cluster.store": ""}))

    await world.restart_etcd_with(world.folder / "backup")
    with pytest.raises(StartError, match="the catalog is older than"):
        await Broker.start(world.config())
    code, said = await world.run("raise-producer-ids")
    assert code == 0, said
    async with await Broker.start(world.config()) as broker:
        assert await producer_id_of_a_new_producer(broker) > known

    shutil.rmtree(world.data_dir)
    await lone_broker_with_records(world)
    code, said = await world.run("move-to-etcd")
    assert (code, "the catalog of another cluster" in said) == (1, True), said
    await (await Broker.start(world.config(**{"cluster.store": ""}))).stop()


async def _ends_here(*_: object) -> None:
    raise KeyboardInterrupt
