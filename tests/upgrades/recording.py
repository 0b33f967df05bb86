"""What brokers of one version leave on disk and in etcd, and what it means: later versions open it.

`python -m tests.upgrades.recording COMMIT` records a commit: a broker that was killed, and three over etcd
that were stopped. Owns the format of `recorded/COMMIT.tar.xz`: the data folders, and `expected.json` with the
keys of etcd and what clients found.
"""

import asyncio
import json
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.several.processes import QUICK
from tests.tidy.house import ROOT
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType

FOLDER = Path(__file__).parent / "recorded"
COMMITS = tuple(sorted(each.name.partition(".")[0] for each in FOLDER.glob("*.tar.xz")))
ONE, SEVERAL = "one", "several"
_CENTURY_MS = "3153600000000"
# Recordings are opened years later, and what they have must not expire.
SETTINGS = {
    **QUICK,
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "52560000",
    "producer.id.expiration.ms": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "broker.session.timeout.ms": "3000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
_ACL = Acl(
    ResourceType.TOPIC, PatternType.LITERAL, "plain", "User:alice", "*", Operation.READ, Permission.ALLOW
)
_KEYS = ("/v3/kv/range", {"key": "AA==", "range_end": "AA=="})
"""All keys of etcd."""


def package(commit: str, folder: Path) -> Path:
    """The package of a commit, in `folder`, where Python finds it before any other."""
    packed = subprocess.run(["git", "archive", commit, "tidelog"], cwd=ROOT, check=True, capture_output=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def command_of(source: Path = ROOT) -> tuple[str, ...]:
    """What starts a broker of the package in `source`."""
    # Else Python finds the package of the working folder first.
    environment = (f"PYTHONPATH={source}", "PYTHONSAFEPATH=1", "TIDELOG_SUPER_USERS=User:ANONYMOUS")
    return "env", *environment, sys.executable, "-m", "tidelog.broker"


@asynccontextmanager
async def cluster(
    folder: Path, kind: str, keys: Sequence[dict[str, str]] = (), source: Path = ROOT
) -> AsyncIterator[tuple[list[BrokerProcess], EtcdClient | None]]:
    """One broker, or three over etcd, with their data in `folder`; `keys` are those of etcd."""
    async with AsyncExitStack() as stack:
        client, places = None, {folder / "broker-1": SETTINGS}
        if kind == SEVERAL:
            place = folder / "etcd"
            place.mkdir()
            etcd = await stack.enter_async_context(running_etcd(place))
            client = EtcdClient(etcd.endpoints)
            stack.push_async_callback(client.close)
            for each in keys:
                await client.call("/v3/kv/put", {"key": each["key"], "value": each["value"]})
            store = {"cluster.store": etcd.store, "min.insync.replicas": "2"}
            places = {
                folder / f"broker-{number}": SETTINGS | store | {"node.id": str(number)}
                for number in (1, 2, 3)
            }
        brokers = []
        for place, settings in places.items():
            broker = BrokerProcess(place, settings=settings, command=command_of(source))
            brokers.append(await stack.enter_async_context(broker))
        yield brokers, client


def addresses(brokers: Sequence[BrokerProcess]) -> str:
    return ",".join(f"127.0.0.1:{each.port}" for each in brokers)


async def fill(address: str, replicas: int) -> dict[str, Any]:
    """Use what is stored; the session of a producer that was not closed."""
    never = {"retention.ms": "-1"}
    compacted = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics(
            [
                NewTopic("plain", 2, replicas, {**never, "max.message.bytes": "2000000"}),
                NewTopic("compacted", 1, replicas, compacted),
                NewTopic("transacted", 1, replicas, never),
                NewTopic("resumed", 1, replicas, never),
                NewTopic("deleted", 1, replicas, never),
            ]
        )
        await admin.delete_topics(["deleted"])
        await admin.users.set_password("alice", "secret", iterations=4096)
        await admin.acls.create([_ACL])
        await admin.quotas.alter((("user", "alice"),), {"producer_byte_rate": 1e6})
        await admin.groups.commit("by-admin", {TopicPartition("plain", 1): 3})
    for codec in ("none", "gzip", "lz4"):
        async with Producer(bootstrap_servers=address, compression_type=codec) as producer:
            for number in range(5):
                await producer.send_and_wait(
                    "plain", b"%s %d" % (codec.encode(), number), partition=number % 2
                )
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(20):
            await producer.send_and_wait("compacted", b"%d" % number, key=b"%d" % (number % 3))
    async with Producer(bootstrap_servers=address, transactional_id="writer") as producer:
        for number, is_committed in enumerate((True, False, True)):
            await producer.begin_transaction()
            await producer.send_and_wait("transacted", b"%d" % number)
            await producer.send_offsets_to_transaction({TopicPartition("plain", 0): number + 1}, "by-writer")
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())
    async with Consumer(
        "plain", bootstrap_servers=address, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(4):
            await consumer.getone()
        await consumer.commit()
    async with Producer(bootstrap_servers=address) as producer:
        await producer.session()
        await producer.send_and_wait("resumed", b"0")
        session = (await producer.session()).to_dict()
        await producer.send_and_wait("resumed", b"1")
    return session


async def described(address: str) -> dict[str, Any]:
    """What clients find, in values of JSON."""
    found: dict[str, Any] = {}
    async with Admin(bootstrap_servers=address) as admin:
        found["topics"] = sorted(await admin.list_topics())
        resource = ConfigResource(ConfigResourceType.TOPIC, "plain")
        configs = (await admin.describe_configs([resource]))[resource]
        found["max.message.bytes"] = next(each.value for each in configs if each.name == "max.message.bytes")
        found["users"] = [each.name for each in await admin.users.list()]
        found["acls"] = await admin.acls.list() == [_ACL]
        found["quotas"] = [sorted(each.items()) for each in (await admin.quotas.list()).values()]
        for group in ("by-admin", "by-writer", "readers"):
            offsets = await admin.groups.offsets(group)
            found[group] = sorted(
                (f"{key.topic}-{key.partition}", each.offset) for key, each in offsets.items()
            )
    for topic in ("plain", "compacted", "transacted", "resumed"):
        for level in ("read_committed", "read_uncommitted"):
            found[f"{topic} {level}"] = await _read(address, topic, level)
    return dict(json.loads(json.dumps(found)))


async def _read(address: str, topic: str, level: str) -> list[Any]:
    """Partition, offset, key and value of each record; of a compacted topic the last value of each key."""
    found: list[Any] = []
    async with Consumer(
        bootstrap_servers=address, isolation_level=level, auto_offset_reset="earliest"
    ) as consumer:
        places = [TopicPartition(topic, each) for each in range(1 + (topic == "plain"))]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(each) < ends[each] for each in places]):
            for place, records in (await consumer.getmany(timeout_ms=100)).items():
                found += [
                    (place.partition, each.offset, (each.key or b"").decode(), (each.value or b"").decode())
                    for each in records
                ]
    if topic == "compacted":
        return sorted({key: value for _, _, key, value in sorted(found)}.items())
    return sorted(found)


async def _record(commit: str, folder: Path) -> None:
    source = package(commit, folder / "source")
    for kind, replicas in ((ONE, 1), (SEVERAL, 3)):
        place = folder / kind
        place.mkdir()
        keys: list[dict[str, str]] = []
        async with cluster(place, kind, source=source) as (brokers, etcd):
            address = addresses(brokers)
            session = await fill(address, replicas)
            expected = {"session": session, "described": await described(address)}
            if etcd is not None:
                for broker in brokers:
                    await broker.terminate()
                held = (await etcd.call(*_KEYS)).get("kvs", ())
                keys = [{"key": each["key"], "value": each["value"]} for each in held if "lease" not in each]
        (place / "expected.json").write_text(json.dumps(expected | {"keys": keys}, indent=1))
    with tarfile.open(FOLDER / f"{commit}.tar.xz", "w:xz") as archive:
        for kind in (ONE, SEVERAL):
            for each in sorted((folder / kind).iterdir()):
                if each.name != "etcd":
                    archive.add(each, f"{kind}/{each.name}")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for commit in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            asyncio.run(_record(commit, Path(folder)))


if __name__ == "__main__":
    main()
