"""The HTTP port of a broker with security: nothing but health answers to whom nobody knows."""

import asyncio
import json
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.certificates import Certificates
from tests.conformance.console_site import Visitor
from tests.conformance.secured import AUTHORIZER, PASSWORD, secured
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.cli.main import main

GUARDED = (
    ("GET", "/metrics"),
    ("GET", "/faults"),
    ("POST", "/faults"),
    ("DELETE", "/faults"),
    ("GET", "/nowhere"),
)


async def asked(
    broker: Broker,
    method: str,
    path: str,
    context: ssl.SSLContext | None = None,
    user: str = "",
    password: str = PASSWORD,
) -> tuple[int, str]:
    scheme = "http" if context is None else "https"
    authorization = (
        {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"} if user else {}
    )
    body = {"data": json.dumps({"fault": "delay"})} if method == "POST" else {}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        aiohttp.ClientSession(headers={"Content-Type": "application/json", **authorization}) as session,
        session.request(
            method, f"{scheme}://127.0.0.1:{broker.http_port}{path}", ssl=context or False, **body
        ) as answer,
    ):
        return answer.status, await answer.text()


async def test_only_health_answers_without_a_password_also_while_the_broker_stops(
    tmp_path: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured(tmp_path) as broker:
        assert await asked(broker, "GET", "/healthz") == (200, "ok\n")
        assert await asked(broker, "GET", "/readyz") == (200, "ready\n")
        for method, path in GUARDED:
            assert (await asked(broker, method, path))[0] == 401, path
            assert (await asked(broker, method, path, user="alice", password="barley"))[0] == 401, path
            assert (await asked(broker, method, path, user="nobody"))[0] == 401, path
        assert (await asked(broker, "GET", "/nowhere", user="alice"))[0] == 404
        status, metrics = await asked(broker, "GET", "/metrics", user="alice")
        assert status == 200
        assert (await asked(broker, "POST", "/faults", user="alice"))[0] in (201, 400)
        for text in (metrics, str(logged)):
            assert "sesame" not in text
            assert "barley" not in text
        flush = broker.services.partitions.close
        statuses = []

        async def ask_and_flush(*, clean: bool) -> None:
            answers = [await asked(broker, "GET", "/metrics", user="alice", password=PASSWORD)]
            answers += [await asked(broker, "GET", "/metrics", user="alice", password="barley")]
            statuses.extend(status for status, _ in answers)
            await flush(clean=clean)

        monkeypatch.setattr(broker.services.partitions, "close", ask_and_flush)
    assert statuses == [200, 401]
    failures = [event for event in logged if event["event"] == "authentication_failed"]
    assert {(event["listener"], event["mechanism"]) for event in failures} == {("HTTP", "basic")}
    assert "kafka_server_socketservermetrics" in metrics


async def test_with_an_authorizer_reading_needs_describe_and_faults_need_alter(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:alice"}
    async with secured(tmp_path, **settings) as broker:
        for method, path in GUARDED:
            status, body = await asked(broker, method, path, user="bob")
            operation = "DESCRIBE" if method == "GET" else "ALTER"
            assert (status, json.loads(body)) == (
                403,
                {"error": f"User:bob needs {operation} on the cluster"},
            )
        assert (await asked(broker, "GET", "/metrics", user="alice"))[0] == 200
        assert (await asked(broker, "DELETE", "/faults", user="alice"))[0] == 200


async def test_over_tls_a_certificate_names_the_user_as_well(
    tmp_path: Path, certificates: Certificates, logged: list[Any]
) -> None:
    settings = {
        "http.security.protocol": "SSL",
        "listener.name.http.ssl.keystore.location": certificates.keystore,
        "listener.name.http.ssl.truststore.location": certificates.authority,
        "listener.name.http.ssl.client.auth": "requested",
        "listener.name.http.ssl.principal.mapping.rules": "RULE:CN=(.*?),.*/$1/",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:carol",
    }
    async with secured(tmp_path, **settings) as broker:
        carol = certificates.context(certificates.client("carol"))
        assert (await asked(broker, "GET", "/metrics", carol))[0] == 200
        dave = certificates.context(certificates.client("dave"))
        assert (await asked(broker, "GET", "/metrics", dave))[0] == 403
        assert (await asked(broker, "GET", "/metrics", certificates.context()))[0] == 401
        assert (await asked(broker, "GET", "/metrics", certificates.context(), user="alice"))[0] == 403
        with pytest.raises(aiohttp.ClientError):
            await asked(broker, "GET", "/healthz")
    events = [event for event in logged if event["event"] == "connection_closed_bad_tls"]
    assert {event["listener"] for event in events} == {"HTTP"}


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
async def test_commands_show_their_user_and_password_at_the_http_port(
    tmp_path: Path, certificates: Certificates, capfd: pytest.CaptureFixture[str], protocol: str
) -> None:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": certificates.keystore,
        "http.security.protocol": protocol,
    }
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={certificates.authority}\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="alice" password="{PASSWORD}";\n'
    )
    async with secured(tmp_path, **settings) as broker:
        flags = ["--bootstrap-servers", f"127.0.0.1:{broker.port}", "--command-config", str(file)]
        for command in (["producers", "t"], ["fault", "list"]):
            assert await asyncio.to_thread(main, [*command, *flags]) == 0
            assert capfd.readouterr().err == ""


HEAD = "POST /faults HTTP/1.1\r\nHost: x\r\n"
WRONG = b64encode(b"alice:barley").decode()
CROWDS = {
    "slow head": HEAD,
    "slow body": HEAD + "Content-Length: 1000\r\n\r\n{",
    "wrong password": f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {WRONG}\r\n\r\n",
    "many connections": "",
    "a body to a health check": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
}


async def stay(port: int, data: bytes, sent: list[bytes]) -> None:
    """Send `data`, wait for the end of the connection, and do so again."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            sent.append(data)
            while await reader.read(1024):
                pass
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("crowd", "has_security"), [*((crowd, True) for crowd in CROWDS), ("many connections", False)]
)
async def test_no_crowd_of_strangers_keeps_a_health_check_out(
    tmp_path: Path, crowd: str, has_security: bool
) -> None:
    settings = {} if has_security else {"listeners": "PLAINTEXT://127.0.0.1:0"}
    delay = {"connection.failed.authentication.delay.ms": 1000}
    async with secured(tmp_path, **settings, **delay) as broker:
        assert broker.http_port is not None
        sent: list[bytes] = []
        data = CROWDS[crowd].encode()
        peers = [asyncio.create_task(stay(broker.http_port, data, sent)) for _ in range(100)]
        await until(lambda: len(sent) >= len(peers))
        answers = await asyncio.gather(
            *[asked(broker, "GET", "/healthz") for _ in range(40)], return_exceptions=True
        )
        for peer in peers:
            peer.cancel()
        await asyncio.gather(*peers, return_exceptions=True)
    assert answers == [(200, "ok\n")] * 40


async def test_a_broker_without_security_asks_nobody(tmp_path: Path) -> None:
    config = BrokerConfig(port=0, http_port=0, data_dir=tmp_path)
    async with await Broker.start(config) as broker:
        assert (await asked(broker, "GET", "/metrics"))[0] == 200
        assert (await asked(broker, "GET", "/console/sign-in"))[0] == 404


EVERY_PATH = ("/metrics", "/faults", "/console/broker", "/api/v1/broker", "/nowhere", "/")


async def test_no_path_of_a_broker_without_security_answers_by_a_name_that_is_not_its_own(
    tmp_path: Path,
) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "http.allowed.hosts": "tidelog,tidelog.prod.svc"}
    advertised = {"advertised.listeners": "PLAINTEXT://broker-1.example:9092"}
    async with secured(tmp_path, **settings, **advertised) as broker:
        port = broker.http_port
        for path in EVERY_PATH:
            visitor = Visitor(broker)
            refused = await visitor.ask("GET", path, headers={"Host": f"rebound.example:{port}"})
            assert refused.status == 403, path
            assert "http.allowed.hosts" in refused.text
            own = (await visitor.get(path)).status
            for host in ("192.0.2.7", "tidelog", "tidelog.prod.svc", "broker-1.example", "localhost"):
                answer = await visitor.ask("GET", path, headers={"Host": f"{host}:{port}"})
                assert answer.status == own != 403, (path, host)
        for host in ("rebound.example", ""):
            answer = await visitor.ask("GET", "/healthz", headers={"Host": host})
            assert answer.status == 200
