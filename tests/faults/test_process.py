"""A broker process can be killed, stopped and started again, and says when it cannot."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from faults.process import BrokerProcess, BrokerProcessError
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with BrokerProcess(tmp_path / "data") as broker:
        yield broker


async def test_a_paused_broker_answers_only_after_resume(broker: BrokerProcess) -> None:
    broker.pause()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    answer = asyncio.create_task(reader.readline())
    done, _ = await asyncio.wait((answer,), timeout=0.1)
    assert not done
    broker.resume()
    assert b"200" in await asyncio.wait_for(answer, DEADLINE_SECONDS)
    writer.close()


async def test_a_broker_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; print('no disk here', file=sys.stderr); sys.exit(3)"
    broker = BrokerProcess(tmp_path, command=(sys.executable, "-c", program))
    with pytest.raises(BrokerProcessError, match=r"exit code 3(.|\n)*no disk here"):
        await broker.start()
    assert not broker.is_running
