"""`tidelog serve --processes N`: kills, stops, and other numbers of processes."""

import asyncio
import os
import signal
from base64 import b64encode
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, CookieJar

from tests.conformance.raw import batch, connected
from tests.several.processes import Processes, children_of, has_ended, processes
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.data_folder.catalog_rebuilding import CatalogRebuilding
from tidelog.broker.data_folder.first_users import add_user
from tidelog.broker.data_folder.verification import Finding, verify_folder
from tidelog.broker.net.http_places import MOST_AT_WORK
from tidelog.broker.net.writing import FORWARDED_HOST, FORWARDED_USER
from tidelog.broker.storage.disk import Disk
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.pipeline.offsets import Place
from tidelog.pipeline.segments.data_folders import bounds_in_files, by_place, find_segments
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

TOPIC = "t"
USER, PASSWORD = "alice", "secret"
PARTITIONS = 4


async def create(broker: Processes, name: str = TOPIC, partitions: int = PARTITIONS) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1, {})])


async def produce(broker: Processes, values: range, topic: str = TOPIC) -> None:
    """Each is acknowledged when this returns."""
    async with Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True) as producer:
        for value in values:
            await producer.send(topic, b"%d" % value, partition=value % PARTITIONS)
        await producer.flush()


async def stored(broker: Processes, count: int, topic: str = TOPIC) -> list[int]:
    """The first `count` values that are read of all partitions, sorted."""
    address = broker.bootstrap_servers
    async with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        return sorted([int((await consumer.getone()).value or b"") for _ in range(count)])


async def add_first_user(data_dir: Path) -> None:
    made = {}
    for mechanism in ScramMechanism:
        salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
        made[mechanism] = credential_of(mechanism, salted, b"salt", 4096)
    await asyncio.to_thread(add_user, data_dir, Disk(), USER, made, node_id=1, cluster_id=None)


async def port_of_first_partition(broker: Processes) -> int:
    """Where the process listens that leads partition 0 of the topic."""
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        leader = (await admin.describe_topics([TOPIC]))[0].partitions[0].leader
        return next(each.port for each in (await admin.describe_cluster()).brokers if each.node_id == leader)


def partitions_in(broker: Processes) -> dict[int, set[str]]:
    """Process -> the folders of the topic that it has."""
    places = {0: broker.data_dir, **{n: broker.data_dir / "processes" / str(n) for n in range(1, 9)}}
    return {
        process: found
        for process, place in places.items()
        if (found := {each.name for each in place.glob(f"{TOPIC}-*")})
    }


async def test_each_process_has_partitions_and_one_that_was_killed_serves_again_while_the_others_go_on(
    tmp_path: Path,
) -> None:
    settings = {"broker.session.timeout.ms": "3000"}
    async with processes(tmp_path / "data", 2, **settings) as broker:
        await create(broker)
        await produce(broker, range(40))
        assert {len(found) for found in partitions_in(broker).values()} == {PARTITIONS // 2}
        await _a_second_start_on_the_folder_is_refused_at_once(broker)
        for process in ("0", "1"):
            pids = broker.pids()
            await broker.kill_and_await(process)
            other = {"0": "1", "1": "0"}[process]
            assert broker.pids()[other] == pids[other]
        (first, second) = broker.running.events("process_ended")
        assert (first["process"], first["exit_code"]) == ("0", -signal.SIGKILL)
        assert second["process"] == "1"
        stopped = broker.pids()["1"]
        os.kill(stopped, signal.SIGSTOP)
        await until(lambda: broker.pids()["1"] != stopped)
        (killed,) = broker.running.events("hung_process_killed")
        assert (killed["process"], killed["pid"]) == ("1", stopped)
        await produce(broker, range(40, 80))
        assert await stored(broker, 80) == list(range(80))
        assert await broker.stop() == 0
        for event in broker.running.events("topic_created"):
            assert event["process"] in ("0", "1")


_HANG = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(10**6))
"""


@pytest.mark.parametrize("name", ["1", "store"])
async def test_a_process_whose_loop_hangs_is_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HANG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with processes(tmp_path / "data", 2, **{"broker.session.timeout.ms": "3000"}) as broker:
        await create(broker)
        await produce(broker, range(20))
        hung = broker.store_pid() if name == "store" else broker.pids()[name]
        os.kill(hung, signal.SIGUSR1)
        await until(lambda: broker.running.events("process_started_again"))
        (killed,) = broker.running.events("hung_process_killed")
        assert (killed["process"], killed["pid"]) == (name, hung)
        await create(broker, "after")
        await produce(broker, range(20, 40))
        assert await stored(broker, 40) == list(range(40))
        assert await broker.stop() == 0


async def _a_second_start_on_the_folder_is_refused_at_once(broker: Processes) -> None:
    for count in (1, 2):
        with pytest.raises(RuntimeError, match="another broker is using"):
            await Processes(broker.data_dir, count).start()


async def test_records_are_served_without_the_store_and_the_catalog_changes_once_it_is_back(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path / "data", 2) as broker:
        await create(broker)
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(TOPIC, b"0", partition=0)
            os.kill(broker.store_pid(), signal.SIGSTOP)
            try:
                for value in range(1, 40):
                    await producer.send_and_wait(TOPIC, b"%d" % value, partition=value % PARTITIONS)
                creation = asyncio.create_task(create(broker, "later"))
            finally:
                os.kill(broker.store_pid(), signal.SIGCONT)
            await creation
        await broker.kill_and_await("store")  # At once; the next time it takes half a second.
        os.kill(broker.store_pid(), signal.SIGKILL)
        await create(broker, "after")
        await produce(broker, range(40), "after")
        await produce(broker, range(40, 80))
        assert await stored(broker, 80) == list(range(80))
        assert await broker.stop() == 0
        await broker.start()
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert {TOPIC, "later", "after"} <= set(await admin.list_topics())
        assert await stored(broker, 40, "after") == list(range(40))


async def test_processes_end_by_themselves_when_the_first_is_killed_and_the_next_start_serves(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path / "data", 2) as broker:
        await create(broker)
        await produce(broker, range(40))
        made_up = 900_000
        async with connected(await port_of_first_partition(broker)) as client:
            assert (await client.produce(batch("40", made_up, 0)))[0] == ErrorCode.NONE
        left = children_of(broker.running.pid or 0)
        assert len(left) == 3
        await broker.running.kill_9()
        await broker.start()
        assert has_ended(left)
        assert await stored(broker, 41) == list(range(41))
        async with connected(await port_of_first_partition(broker)) as client:
            assert await client.producer_id() > made_up
        assert await broker.stop() == 0


async def test_partitions_move_when_the_number_of_processes_changes_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    settings = {"producer.id.unknown.sequence": "accept"}
    async with processes(tmp_path / "data", 1, **settings) as broker:
        await create(broker)
        async with connected(broker.running.port) as client:
            await client.create("other")
            made_up = batch("an id that no broker gave hinders no start", 9_999_999, 0)
            assert await client.produce(made_up, topic="other") == (ErrorCode.NONE, 0)
        for number, count in enumerate((1, 4, 3, 1)):
            if number:
                assert await broker.stop() == 0
                broker.count = count
                await broker.start()
            await produce(broker, range(40 * number, 40 * number + 40))
            assert await stored(broker, 40 * (number + 1)) == list(range(40 * (number + 1)))
            if count == 4:
                assert Counter(map(len, partitions_in(broker).values())) == {1: 4}
        assert partitions_in(broker).keys() == {0}
        assert not (broker.data_dir / "processes").exists()


async def test_the_folders_of_all_processes_are_verified_read_without_a_broker_and_made_a_catalog_of(
    tmp_path: Path,
) -> None:
    async with processes(tmp_path / "data", 2) as broker:
        await create(broker)
        await produce(broker, range(40))
        assert await broker.stop() == 0
        findings: list[Finding] = []
        totals = verify_folder(broker.data_dir, findings.append)
        assert (totals.partitions, totals.records, findings) == (PARTITIONS, 40, [])
        segments = by_place(find_segments([broker.data_dir], [TOPIC]))
        assert bounds_in_files(segments) == {
            Place(TOPIC, index): (0, 40 // PARTITIONS) for index in range(PARTITIONS)
        }
        for name in ("cluster.db", "cluster.copy"):
            (broker.data_dir / name).unlink()
        rebuilding = CatalogRebuilding(broker.data_dir)
        rebuilding.write(rebuilding.plan())
        placed = partitions_in(broker)
        await broker.start()
        assert partitions_in(broker) == placed
        assert await stored(broker, 40) == list(range(40))
        assert await broker.stop() == 0


async def test_one_http_port_answers_for_all_processes(tmp_path: Path) -> None:
    settings = {"faults.enable": "true", "broker.session.timeout.ms": "600000"}
    async with processes(tmp_path / "data", 2, **settings) as broker, ClientSession() as http:
        await create(broker)
        await produce(broker, range(40))
        address = f"http://127.0.0.1:{broker.running.http_port}"

        async def get(path: str, expected: str, status: int = 200) -> str:
            """The answer, once it has this text: one that a busy process gives late is left out."""
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:
                    async with http.get(address + path) as answer:
                        text = await answer.text()
                        if expected in text and answer.status == status:
                            return text

        for process in (0, 1):
            name = "kafka_server_brokertopicmetrics_messagesin_total"
            metrics = await get("/metrics", f'{name}{{process="{process}",topic="t"}} 20.0\n')
            assert metrics.count(f"# TYPE {name}") == 1
        await get("/healthz", "ok\n")
        await get("/readyz", "ready\n")
        await get("/processes/1/readyz", "ready\n")
        await get("/processes/2/readyz", "there is no process 2", 404)
        for process in (0, 1):
            query = f"/processes/{process}/api/v1/producers?topic={TOPIC}"
            await get(query, f'"node_id": {1 + process}')
            await get(query, f'"total": {PARTITIONS}')
            await get(f"/processes/{process}/api/v1/group?group_id=a%26b%23", "a&b#", 404)
        async with AsyncExitStack() as streams:
            for number in range(MOST_AT_WORK):
                stream = f"/processes/{number % 2}/api/v1/events/overview"
                answer = await streams.enter_async_context(http.get(address + stream))
                assert answer.status == 200
            await get("/metrics", "tidelog_process_up")
        order = {"fault": "error", "api": "produce", "topic": TOPIC, "error": "NOT_ENOUGH_REPLICAS"}
        async with http.post(f"{address}/faults", json=order) as answer:
            assert answer.status == 201, await answer.text()
        await get("/faults", '"process": 1')
        for path in ("/metrics", "/faults", "/processes/1/metrics", "/api/v1/broker", "/console/broker"):
            async with http.get(address + path, headers={"Host": "rebound.example"}) as answer:
                assert (answer.status, "http.allowed.hosts" in await answer.text()) == (403, True), path
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.running.http_port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")  # Only browsers have to name a host.
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert b" 200 " in await reader.readline()
        writer.close()
        async with http.delete(
            f"{address}/faults", headers={"Origin": "https://elsewhere.example"}
        ) as answer:
            assert answer.status == 403
        os.kill(broker.pids()["1"], signal.SIGSTOP)
        try:
            await get("/healthz", "ok\n")
            await get("/readyz", "not ready: process", 503)
            await get("/metrics", 'tidelog_process_up{process="1"} 0.0\n')
            await get(f"/api/v1/producers?topic={TOPIC}", '"unanswered": [2]')
        finally:
            os.kill(broker.pids()["1"], signal.SIGCONT)
        assert await broker.stop() == 0


STRANGERS = 40
"""More than may have a request in progress."""


async def test_strangers_take_no_place_on_the_http_port_from_those_with_a_password(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await add_first_user(data_dir)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "connection.failed.authentication.delay.ms": "1000",
        "broker.session.timeout.ms": "600000",
    }
    async with processes(data_dir, 2, **settings) as broker, ClientSession() as http:
        port = broker.running.http_port
        assert port is not None
        answers: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        wrong = b64encode(b"nobody:wrong").decode()

        async def stranger(head: str) -> None:
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    while True:
                        writer.write(head.encode())
                        asked[head] += 1
                        line = await reader.readuntil(b"\r\n\r\n")
                        answers[line.split()[1].decode()] += 1
                except (ConnectionError, asyncio.IncompleteReadError):
                    pass
                finally:
                    writer.transport.abort()

        paths = ("/metrics", "/api/v1/broker", "/console/broker", "/processes/1/metrics")
        heads = [f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" for path in paths]
        heads += [f"{head}Authorization: Basic {wrong}\r\n" for head in heads]
        crowd = [
            asyncio.create_task(stranger(f"{heads[number % len(heads)]}\r\n"))
            for number in range(2 * STRANGERS)
        ]
        await until(lambda: sum(asked.values()) >= len(crowd) and len(asked) == len(heads))
        login = {"Authorization": "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
        statuses: Counter[int] = Counter()
        for _ in range(10):
            for path in paths:
                async with http.get(f"http://127.0.0.1:{port}{path}", headers=login) as answer:
                    statuses[answer.status] += 1
        for each in crowd:
            each.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        assert statuses == {200: 10 * len(paths)}
        assert "503" not in answers
        address = f"http://127.0.0.1:{port}"
        os.kill(broker.pids()["0"], signal.SIGSTOP)
        try:
            async with http.get(f"{address}/metrics", headers=login) as answer:
                assert 'tidelog_process_up{process="0"} 0.0\n' in await answer.text()
        finally:
            os.kill(broker.pids()["0"], signal.SIGCONT)
        async with http.get(f"{address}/processes/1/api/v1/events/log", headers=login) as answer:
            assert answer.status == 200
            await broker.kill_and_await("1")
            with pytest.raises(ClientPayloadError):
                await answer.read()
        assert await broker.stop() == 0
        assert not broker.running.events("http_request_failed")


async def test_processes_with_security_need_no_more_settings_and_their_http_port_trusts_no_header(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    await add_first_user(data_dir)
    settings = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    async with processes(data_dir, 2, **settings) as broker, ClientSession() as http:
        client: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
        async with Admin(**client) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, {})])
        async with Producer(**client, transactional_id="x") as producer:
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send(TOPIC, b"v", partition=partition)
            await producer.commit_transaction()
        committed = {**client, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with Consumer(TOPIC, **committed) as consumer:
            assert [(await consumer.getone()).value for _ in range(PARTITIONS)] == [b"v"] * PARTITIONS
        address = f"http://127.0.0.1:{broker.running.http_port}"
        login = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        for path in ("/metrics", "/api/v1/topics", "/faults", "/processes/1/metrics", "/nowhere"):
            for headers in ({}, {FORWARDED_USER: USER, FORWARDED_HOST: "127.0.0.1"}):
                async with http.get(address + path, headers=headers) as answer:
                    assert (answer.status, "WWW-Authenticate" in answer.headers) == (401, True), path
        authorized = {"Authorization": f"Basic {login}"}
        async with http.get(f"{address}/metrics", headers=authorized) as answer:
            assert answer.status == 200
        # One visitor signs in by the console, and another one is nobody still.
        form = {"user": USER, "password": PASSWORD, "next": "/console/topics"}
        jar = CookieJar(unsafe=True)
        async with ClientSession(cookie_jar=jar) as visitor:
            async with visitor.post(f"{address}/console/sign-in", data=form, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/console/topics")
            async with visitor.get(f"{address}/api/v1/topics") as answer:
                assert answer.status == 200
        async with ClientSession() as other, other.get(f"{address}/api/v1/topics") as answer:
            assert answer.status == 401
        async with http.get(f"{address}/healthz") as answer:
            assert answer.status == 200
        assert await broker.stop() == 0
