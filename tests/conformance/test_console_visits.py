"""The console costs nothing before its first visitor, and its streams end when they should."""

import asyncio
import subprocess
import sys
from base64 import b64encode
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.conformance.console_site import Visitor
from tests.conformance.secured import AUTHORIZER, PASSWORD, secured
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.console.live import MOST_OF_VISITOR
from tidelog.broker.net.http_places import MOST_AT_WORK
from tidelog.client import Producer
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType

LOG = "/api/v1/events/log"
_PROGRAM = """
import asyncio, sys
from pathlib import Path
import aiohttp
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig

def loaded():
    late = ("tidelog.broker.console", "jinja2", "msgspec")
    return sorted({each for each in late if each in sys.modules})

async def main():
    config = BrokerConfig(port=0, http_port=0, data_dir=Path(sys.argv[1]))
    async with await Broker.start(config) as broker, aiohttp.ClientSession() as session:
        for path in ("healthz", "readyz", "metrics", "faults", "elsewhere", "console/broker"):
            before = loaded()
            async with session.get(f"http://127.0.0.1:{broker.http_port}/{path}") as answer:
                await answer.read()
        print(before)
        print(answer.status, loaded())

asyncio.run(main())
"""


async def started(tmp_path: Path, **settings: object) -> Broker:
    return await Broker.start(BrokerConfig(port=0, http_port=0, data_dir=tmp_path, **settings))  # type: ignore[arg-type]


def test_nothing_of_the_console_is_imported_before_its_first_visitor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "[]",
        "200 ['jinja2', 'msgspec', 'tidelog.broker.console']",
    ], done.stderr


async def test_many_visitors_come_first_at_once(tmp_path: Path) -> None:
    async with await started(tmp_path) as broker:
        answers = await asyncio.gather(*(Visitor(broker).get("/console/broker") for _ in range(8)))
        assert {each.status for each in answers} == {200}


@pytest.mark.usefixtures("watchful_streams")
async def test_a_visitor_follows_a_bounded_number_of_streams_and_may_leave_and_come_back(
    tmp_path: Path,
) -> None:
    async with await started(tmp_path) as broker:
        visitor = Visitor(broker)
        async with AsyncExitStack() as stack:
            for _ in range(MOST_OF_VISITOR):
                await stack.enter_async_context(visitor.follow(LOG))
            refused = await visitor.begin(LOG)
            assert (refused.status, refused.json["code"]) == (503, "THROTTLING_QUOTA_EXCEEDED")
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (await visitor.begin(LOG)).status != 200:
                pass


async def test_streams_are_no_requests_at_work(tmp_path: Path) -> None:
    """However many pages are left open, others are served."""
    async with await started(tmp_path, http_host="0.0.0.0") as broker, AsyncExitStack() as stack:
        for host in range(2, 2 + MOST_AT_WORK // MOST_OF_VISITOR + 1):
            connector = aiohttp.TCPConnector(local_addr=(f"127.0.0.{host}", 0))
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            for _ in range(MOST_OF_VISITOR):
                url = f"http://127.0.0.1:{broker.http_port}{LOG}"
                answer = await stack.enter_async_context(session.get(url))
                assert answer.status == 200
        assert (await Visitor(broker).get("/metrics")).status == 200


async def test_streams_end_when_the_broker_stops(tmp_path: Path) -> None:
    broker = await started(tmp_path)
    async with Visitor(broker).follow(LOG) as events:
        stopping = asyncio.create_task(broker.stop())
        assert [name async for name, _ in events] == ["end"]
        await until(stopping.done)
        await stopping


LEFT_EARLY = (
    LOG,
    "/api/v1/topics/t/search?text=x",
    "/console/broker",
    "/api/v1/broker",
    "/metrics",
)


async def test_a_visitor_who_leaves_before_the_answer_begins_is_no_error(tmp_path: Path) -> None:
    login = b64encode(f"alice:{PASSWORD}".encode()).decode()
    with capture_logs() as events:
        async with secured(tmp_path) as broker:
            for path in LEFT_EARLY * 4:
                _, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
                # The check of the password takes longer than the visitor waits.
                writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\r\n".encode()
                )
                await writer.drain()
                writer.transport.abort()
            headers = {"Authorization": f"Basic {login}"}
            assert (await Visitor(broker, headers).get("/metrics")).status == 200
    assert not [event for event in events if "exc_info" in event or event["log_level"] == "error"]


async def test_a_download_that_may_not_go_on_is_cut_off_without_an_error(tmp_path: Path) -> None:
    login = b64encode(f"bob:{PASSWORD}".encode()).decode()
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:alice"}
    kind, allow = ResourceType.TOPIC, Permission.ALLOW
    acl = Acl(kind, PatternType.LITERAL, "t", "User:bob", "*", Operation.READ, allow)
    with capture_logs() as events:
        async with secured(tmp_path, **settings) as broker:
            await broker.services.acls.create([acl])
            await fill(broker)
            url = f"http://127.0.0.1:{broker.http_port}/api/v1/topics/t/download"
            headers = {"Authorization": f"Basic {login}"}
            async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
                assert answer.status == 200
                await answer.content.readany()
                await broker.services.acls.delete([acl])
                async with asyncio.timeout(DEADLINE_SECONDS):
                    with pytest.raises(aiohttp.ClientPayloadError):
                        await answer.read()
    assert not [event for event in events if "exc_info" in event or event["log_level"] == "error"]


async def fill(broker: Broker) -> None:
    """With more than fits between the broker and a reader who waits."""
    client = {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    async with Producer(**client) as producer:
        for _ in range(40):
            await producer.send_and_wait("t", b"x" * 500_000)
