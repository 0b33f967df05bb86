"""The console costs nothing before its first visitor, and its streams end when they should."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.conformance.console_site import Visitor
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.console.live import MOST_OF_VISITOR
from tidelog.broker.net.http_places import MOST_AT_WORK

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
