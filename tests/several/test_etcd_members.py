"""Three members of etcd fail under three writers: images are equal, each delta comes once, nothing is lost.

`make etcd ROUNDS=20` goes through the faults that many times.
"""

import asyncio
import os
import time
from pathlib import Path
from uuid import uuid4

import pytest

from faults.etcd import running_etcd
from tests.certificates import Certificates
from tests.ports import free_port
from tests.several.etcd_writers import Writer, check, compact, through
from tests.unit.broker.cluster.stores import commit, facts_of
from tidelog.broker.cluster.catalog import ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.etcd_layout import after, key
from tidelog.broker.cluster.etcd_store import EtcdStore
from tidelog.broker.cluster.store import BrokerSession, StoreError

pytestmark = pytest.mark.needs_etcd
ROUNDS = int(os.environ.get("ROUNDS", "1"))


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_members_are_killed_stopped_and_compacted_under_three_writers(
    tmp_path: Path, number: int
) -> None:
    async with running_etcd(tmp_path, 3) as members:
        writers = [await Writer.opened(node_id, members) for node_id in range(3)]
        client = EtcdClient(members.endpoints, patience_s=60)

        async def kill_leader() -> None:
            leader = await members.leader()
            await members.kill(leader)
            await asyncio.gather(*(writer.goes_on(5) for writer in writers))
            await members.start(leader)

        async def stop_each() -> None:
            """One of them leads."""
            for number in range(3):
                await members.stop(number)
                await asyncio.gather(*(writer.goes_on(5) for writer in writers))
                members.go_on(number)

        async def compact_often() -> None:
            for _ in range(5):
                await asyncio.gather(*(writer.goes_on(5) for writer in writers))
                await compact(client)

        async def kill_most() -> None:
            """Nothing can be committed meanwhile."""
            leader = await members.leader()
            others = [number for number in range(3) if number != leader]
            for number in others:
                await members.kill(number)
            for number in others:
                await members.start(number)

        await through(writers, kill_leader, compact_often, stop_each, kill_most)
        acknowledged, unanswered = await check(writers), sum(len(each.unanswered) for each in writers)
        slowest_s = max(each.longest_s for each in writers)
        print(
            f"round {number}: {acknowledged} changes acknowledged, {unanswered} unanswered,"
            f" the slowest took {slowest_s:.1f} s"
        )
        await asyncio.gather(*(writer.close() for writer in writers))
        await client.close()


async def test_a_commit_that_arrives_after_it_was_settled_stores_nothing(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as members:
        store = EtcdStore(EtcdClient(members.endpoints), node_id=1)
        catalog = await store.load()
        await commit(store, catalog, ProducerIdsReserved(1000))
        nonce, head = uuid4(), store._head
        assert head is not None
        late = store._layout.commit(head, [ProducerIdsReserved(9000)], 1, nonce, None)
        assert not await store.settle(nonce, catalog.revision)
        assert not (await store._transaction(late)).get("succeeded")
        assert facts_of(await store.load()) == facts_of(catalog)
        await store.close()


async def test_a_member_that_cannot_be_reached_is_reported_with_the_reason_of_the_system() -> None:
    client = EtcdClient((f"http://127.0.0.1:{free_port()}",), patience_s=0.1)
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:\d+: \[Errno 111\] Connect call failed"):
        await client.call("/v3/kv/range", {})
    await client.close()


async def test_a_change_that_no_member_answers_is_settled_once_they_do(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as members:
        store = EtcdStore(EtcdClient(members.endpoints, patience_s=1), node_id=1)
        cluster = Cluster(await store.load(), store)
        dropped: list[bool] = []
        for number in range(2):
            before = cluster.catalog.next_producer_id
            await members.stop(0)
            with pytest.raises(StoreError, match="no answer"):
                await cluster.change(
                    lambda catalog: ProducerIdsReserved(catalog.next_producer_id + 1),
                    lambda: dropped.append(True),
                )
            members.go_on(0)
            while True:
                try:
                    await cluster.settle()
                    break
                except StoreError:
                    continue
            is_stored = cluster.catalog.next_producer_id == before + 1
            assert len(dropped) == number + 1 - cluster.catalog.next_producer_id
            assert is_stored or cluster.catalog.next_producer_id == before
        assert facts_of(await store.load()) == facts_of(cluster.catalog)
        await cluster.close()


async def test_a_session_that_is_not_kept_ends_and_its_broker_knows_before_the_others(tmp_path: Path) -> None:
    async with running_etcd(tmp_path) as members:
        store, other = (
            EtcdStore(EtcdClient(members.endpoints), node_id=node_id, session_timeout_ms=1000)
            for node_id in (1, 2)
        )
        session = BrokerSession(1, uuid4())
        await store.begin_session(session)
        sessions = other.watch_sessions()
        while session not in await anext(sessions):
            pass  # It may have ended and begun again, where this process was stopped.
        assert store._session._task is not None
        store._session._task.cancel()
        while session in await anext(sessions):
            pass
        assert store.session_valid_until_ms < time.monotonic() * 1000
        await store._session._prolong(session)
        while session not in await anext(sessions):
            pass
        await store.close()
        await other.close()


async def test_etcd_may_ask_for_tls_and_for_a_password(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    more = [f"--cert-file={certificates.keystore}", f"--key-file={certificates.keystore}"]
    context = certificates.context()
    async with running_etcd(tmp_path, 2, more, "https", context) as members:
        root = EtcdClient(members.endpoints, ssl_context=context)
        both = {"permType": "READWRITE", "key": key("mine/"), "range_end": after("mine/")}
        for path, body in (
            ("user/add", {"name": "root", "password": "r"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("role/add", {"name": "brokers"}),
            ("role/grant", {"name": "brokers", "perm": both}),
            ("user/add", {"name": "tidelog", "password": "secret"}),
            ("user/grant", {"user": "tidelog", "role": "brokers"}),
            ("enable", {}),
        ):
            await root.call(f"/v3/auth/{path}", body, timeout_s=60)  # It may not be asked twice.
        await root.close()

        def opened(prefix: str, password: str) -> EtcdStore:
            client = EtcdClient(
                members.endpoints, user="tidelog", password=password, ssl_context=context, patience_s=60
            )
            return EtcdStore(client, node_id=1, prefix=prefix)

        for prefix, password in (("mine", "wrong"), ("theirs", "secret"), ("mine", "")):
            refused = opened(prefix, password)
            with pytest.raises(StoreError, match=r"cluster\.store\.password"):
                await refused.load()
            await refused.close()
        store = opened("mine", "secret")
        cluster = Cluster(await store.load(), store)
        await store.begin_session(BrokerSession(1, uuid4()))
        await cluster.change(lambda catalog: ProducerIdsReserved(catalog.next_producer_id + 1000))
        for member in range(2):  # A member that was started again knows no token of before.
            await members.kill(member)
        for member in range(2):
            await members.start(member)
        assert cluster.catalog.next_producer_id == 1000
        await cluster.change(lambda catalog: ProducerIdsReserved(catalog.next_producer_id + 1000))
        await cluster.close()
        plain = EtcdClient(members.endpoints, patience_s=60)
        with pytest.raises(StoreError, match=r"ssl\.truststore"):
            await plain.call("/v3/kv/range", {"key": "AA=="})
        await plain.close()
