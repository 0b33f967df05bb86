"""The etcd of deploy/kubernetes/cluster.yml, with its own flags, lets only the brokers' user in, by TLS."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from faults.etcd import BINARY
from tests.ports import free_port
from tests.tidy.house import ROOT
from tests.waiting import until
from tidelog.broker.app import Broker
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_layout import after, key
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster_stores import etcd_store_of
from tidelog.broker.configuration.broker_config import BrokerConfig

FOLDER = ROOT / "deploy" / "kubernetes"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "cluster.yml").read_text()))
PASSWORD = "of the secret"
CLIENT, PEER, METRICS = "2379", "2380", "2381"


def container(name: str) -> dict[str, Any]:
    (stateful,) = (
        each for each in OBJECTS if each["kind"] == "StatefulSet" and each["metadata"]["name"] == name
    )
    (found,) = stateful["spec"]["template"]["spec"]["containers"]
    return dict(found)


class Here:
    """What stands for the names, ports and folders of a pod."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in (CLIENT, PEER, METRICS)}

    def filled(self, text: str) -> str:
        for port, own in self.ports.items():
            text = text.replace(f":{port}", f":{own}")
        for index in range(3):
            text = text.replace(f"tidelog-etcd-{index}.tidelog-etcd.$(NAMESPACE).svc", "localhost")
        text = text.replace("$(POD).tidelog-etcd.$(NAMESPACE).svc", "localhost").replace(
            "0.0.0.0", "127.0.0.1"
        )
        text = text.replace("$(POD)", "tidelog-etcd-0").replace("/var/lib/etcd", str(self.folder))
        for mounted in ("/etc/etcd/certificates", "/etc/tidelog/etcd"):
            text = text.replace(mounted, str(self.folder))
        return text

    def flags(self) -> list[str]:
        """Of the first member, alone."""
        _, *flags = map(self.filled, container("tidelog-etcd")["command"])
        name = "--initial-cluster="
        return [each.partition(",")[0] if each.startswith(name) else each for each in flags]

    def config(self) -> BrokerConfig:
        """Of a broker, by the environment of its pod."""
        given = {each["name"]: each for each in container("tidelog")["env"]}
        environment = {
            name: self.filled(each.get("value", PASSWORD))
            for name, each in given.items()
            if name.startswith("TIDELOG_CLUSTER_STORE")
        }
        more = {"port": 0, "http.port": -1, "data.dir": str(self.folder / "broker")}
        return BrokerConfig.load(more, environ=environment)


def is_well(here: Here) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{here.ports[METRICS]}/health", timeout=1) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


@asynccontextmanager
async def member(here: Here) -> AsyncIterator[None]:
    with (here.folder / "log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            BINARY or "etcd", *here.flags(), stdout=log, stderr=log
        )
    try:
        await until(lambda: is_well(here))
        yield
    finally:
        running.kill()
        await running.wait()


async def make_users(root: EtcdClient) -> None:
    """What the comment of the file tells to do with etcdctl."""
    both = {"permType": "READWRITE", "key": key("tidelog/"), "range_end": after("tidelog/")}
    for path, body in (
        ("user/add", {"name": "root", "password": "of root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "tidelog"}),
        ("role/grant", {"name": "tidelog", "perm": both}),
        ("user/add", {"name": "tidelog", "password": PASSWORD}),
        ("user/grant", {"user": "tidelog", "role": "tidelog"}),
        ("enable", {}),
    ):
        await root.call(f"/v3/auth/{path}", body, timeout_s=60)


@pytest.mark.needs_etcd
async def test_the_etcd_of_kubernetes_lets_only_the_brokers_in_and_only_by_tls(tmp_path: Path) -> None:
    script = ["sh", str(FOLDER / "etcd-certificates.sh"), "shop"]
    await asyncio.to_thread(subprocess.run, script, cwd=tmp_path, check=True, capture_output=True)
    here = Here(tmp_path)
    async with member(here):
        config = here.config()
        assert config.cluster_store.count("https://localhost:") == 3
        opened = etcd_store_of(config.with_settings({"cluster.store.user": ""}), may_begin=True)
        await make_users(opened._client)
        with pytest.raises(StoreError, match=r"cluster\.store\.password"):
            await opened.load()
        await opened.close()
        plain = EtcdClient([f"http://localhost:{here.ports[CLIENT]}"], patience_s=0)
        with pytest.raises(StoreError):
            await plain.call("/v3/kv/range", {"key": "AA=="})
        await plain.close()
        async with await Broker.start(config) as broker:
            assert broker.services.catalog.brokers
        peers = await asyncio.open_connection("127.0.0.1", int(here.ports[PEER]))
        peers[1].write(b"GET /members HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " not in await peers[0].readline()
        peers[1].close()


def test_the_policy_lets_in_only_brokers_and_members() -> None:
    (policy,) = (each["spec"] for each in OBJECTS if each["kind"] == "NetworkPolicy")
    assert policy["podSelector"]["matchLabels"] == {"app": "tidelog-etcd"}
    assert policy["policyTypes"] == ["Ingress"]
    who = {
        (each["port"], tuple(one["podSelector"]["matchLabels"]["app"] for one in rule.get("from", ())))
        for rule in policy["ingress"]
        for each in rule["ports"]
    }
    open_port = int(METRICS)
    assert who == {
        (int(CLIENT), ("tidelog",)),
        (int(CLIENT), ("tidelog-etcd",)),
        (int(PEER), ("tidelog-etcd",)),
        (open_port, ()),
    }
