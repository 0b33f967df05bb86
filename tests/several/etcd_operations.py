"""The runbooks of etcd in `docs/cluster-operations.md`, typed with etcdctl under a broker that runs.

`make cluster` runs it; it needs etcdctl (`apt-get install etcd-client`).
"""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from faults.etcd import EtcdMembers, running_etcd
from faults.process import BrokerProcess, BrokerProcessError
from tests.several.full_etcd import QUOTA_BYTES, fill
from tests.several.processes import QUICK
from tests.several.runbooks import Operator, commands
from tests.several.test_kubernetes_etcd import CLIENT, Here, member
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.store import StoreError
from tidelog.client import Admin, ClientError, Consumer, NewTopic, Producer


class Members:
    """Types the commands of a section; `at` is the member at whose machine the operator is."""

    def __init__(self, folder: Path, etcd: EtcdMembers, broker: BrokerProcess) -> None:
        self._folder = folder
        self._etcd = etcd
        self._broker = broker

    async def follow(self, section: str, at: int, *flags: str) -> None:
        await self.type(at, *commands(section), flags=flags)

    async def type(self, at: int, *typed: str, flags: Sequence[str] = ()) -> None:
        operator = Operator(self._folder, [f"127.0.0.1:{self._broker.port}"])
        for command in typed:
            match command:
                case "systemctl stop etcd":
                    await self._etcd.kill(at)
                case "systemctl start etcd":
                    await self._etcd.start(at, *flags)
                case "systemctl start tidelog":
                    await self._broker.start()
                case _:
                    text = command.replace("/var/lib/etcd", f"{self._folder}/m{at}")
                    text = text.replace(f"http://etcd-{at + 1}:2380", self._etcd.peer(at))
                    text = text.replace(f"etcd-{at + 1}", f"m{at}")
                    running = [url for n, url in enumerate(self._etcd.endpoints) if n != at]
                    endpoints = ",".join(running or self._etcd.endpoints)
                    await operator.type(text, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=endpoints)


def broker_over(folder: Path, etcd: EtcdMembers, **more: object) -> BrokerProcess:
    folder.mkdir(exist_ok=True)
    settings = {**QUICK, "cluster.store": etcd.store, **more}
    (folder / "broker.toml").write_text(
        f"'data.dir' = '{folder / 'broker'}'\n"
        + "".join(f"'{name}' = '{settings[name]}'\n" for name in settings if name not in QUICK)
    )
    return BrokerProcess(folder / "broker", settings=settings)


async def creates(broker: BrokerProcess, *names: str) -> set[str]:
    """Create topics; the names of all."""
    async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        await admin.create_topics([NewTopic(each, 1, 1) for each in names])
        return {each.name for each in await admin.describe_topics() if not each.is_internal}


@pytest.fixture(autouse=True)
def etcdctl() -> None:
    assert shutil.which("etcdctl"), "install etcdctl: apt-get install etcd-client"


async def test_a_member_that_lost_its_data_is_replaced(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, 3) as etcd:
        broker = broker_over(tmp_path, etcd)
        await broker.start()
        await creates(broker, "before")
        await Members(tmp_path, etcd, broker).follow(
            "Replace a member of etcd", 1, "--initial-cluster-state=existing"
        )
        await etcd.kill(2)
        assert await creates(broker, "after") == {"before", "after"}
        assert await broker.terminate() == 0


async def test_space_is_freed_in_a_full_etcd(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, 1, [f"--quota-backend-bytes={QUOTA_BYTES}"]) as etcd:
        broker = broker_over(tmp_path, etcd)
        await broker.start()
        client = EtcdClient(etcd.endpoints)
        with pytest.raises(StoreError, match="space exceeded"):
            await fill(client)
        await client.close()
        await Members(tmp_path, etcd, broker).follow("Free space in etcd", 0)
        assert await creates(broker, "after") == {"after"}
        assert await broker.terminate() == 0


async def test_a_store_that_lost_all_is_restored(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, 1) as etcd:
        broker = broker_over(tmp_path, etcd)
        await broker.start()
        await creates(broker, "before")
        operator = Operator(tmp_path, [])
        save = "etcdctl snapshot save catalog.snapshot"
        await operator.type(save, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=etcd.endpoints[0])
        assert await broker.terminate() == 0
        await etcd.kill(0)
        await Members(tmp_path, etcd, broker).follow("Restore etcd", 0)
        assert await creates(broker, "after") == {"before", "after"}
        assert await broker.terminate() == 0


@asynccontextmanager
async def restored(folder: Path) -> AsyncIterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two brokers that were killed, over an etcd from before the second of them left the in-sync set of `t`.
    The first one acknowledged a record since."""
    async with running_etcd(folder, 1) as etcd:
        first, second = (
            broker_over(folder / f"at-{node_id}", etcd, **{"node.id": node_id, "min.insync.replicas": 1})
            for node_id in (1, 2)
        )
        await first.start()
        await second.start()
        async with Admin(bootstrap_servers=addresses(first, second)) as admin:
            await admin.create_topics([NewTopic("t", 1, 2)])
            await led_with(admin, {1, 2})
            operator = Operator(folder, [])
            save = "etcdctl snapshot save catalog.snapshot"
            await operator.type(save, ETCDCTL_API="3", ETCDCTL_ENDPOINTS=etcd.endpoints[0])
            await second.kill_9()
            await led_with(admin, {1})
        async with Producer(bootstrap_servers=addresses(first, second), enable_idempotence=False) as producer:
            await producer.send_and_wait("t", b"only at 1")
        await first.kill_9()
        await etcd.kill(0)
        await Members(folder, etcd, first).type(0, *commands("Restore etcd")[:2], "systemctl start etcd")
        try:
            yield first, second
        finally:
            await first.kill_9()
            await second.kill_9()


def addresses(*brokers: BrokerProcess) -> str:
    return ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


async def test_a_killed_broker_is_not_started_with_a_catalog_older_than_what_it_acknowledged(
    tmp_path: Path,
) -> None:
    async with restored(tmp_path) as (first, second):
        with pytest.raises(BrokerProcessError, match=r"the catalog is older than .* it is at revision \d+,"):
            await first.start()
        for broker in (first, second):
            command = "tidelog cluster raise-producer-ids --config broker.toml"
            await Operator(broker.data_dir.parent, []).type(command)
        await second.start()
        await first.start()
        async with Consumer(
            "t", bootstrap_servers=addresses(first, second), auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"only at 1"


async def test_a_broker_is_not_started_with_an_older_catalog_that_others_have_changed_since(
    tmp_path: Path,
) -> None:
    async with restored(tmp_path) as (first, second):
        await second.start()
        await creates(second, *map(str, range(30)))
        with pytest.raises(BrokerProcessError, match=r"the catalog is older than .* it is at revision \d\d,"):
            await first.start()


async def led_with(admin: Admin, in_sync: set[int]) -> None:
    """Return once the partition of `t` has a leader, and these in-sync replicas."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with suppress(ClientError):
                ((partition,),) = [each.partitions for each in await admin.describe_topics(["t"])]
                if set(partition.isr) == in_sync and partition.leader in in_sync:
                    return
            await asyncio.sleep(0.05)


async def test_a_renewed_certificate_is_used_without_a_restart_and_the_authority_stays(
    tmp_path: Path,
) -> None:
    script, _ = commands("Renew the certificates of etcd")
    command = f"sh {ROOT}/{script}"

    def make() -> None:
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True)

    make()
    authority = (tmp_path / "ca.crt").read_bytes()
    here = Here(tmp_path)
    async with member(here):
        address = ("localhost", int(here.ports[CLIENT]))
        trusted = str(tmp_path / "ca.crt")
        first = await asyncio.to_thread(ssl.get_server_certificate, address, ca_certs=trusted)
        make()
        second = await asyncio.to_thread(ssl.get_server_certificate, address, ca_certs=trusted)
    assert first != second
    assert second.strip() == (tmp_path / "tls.crt").read_text().strip()
    assert (tmp_path / "ca.crt").read_bytes() == authority
