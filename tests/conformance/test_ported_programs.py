"""A program of aiokafka needs only other names in its imports."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.certificates import Certificates
from tests.conformance.conftest import RunningBroker
from tests.conformance.peers.aio import AioKafka
from tests.waiting import DEADLINE_SECONDS

SOURCE = Path(__file__).with_name("ported_programs.py").read_text()
PROGRAMS = re.findall(r"^async def (\w+)\(site: Site\) -> None:", SOURCE, re.MULTILINE)
OUR_NAMES = (
    (r"from aiokafka(\.\w+)?", "from tidelog"),
    (r"\bAIOKafka", ""),
    (r"\bKafkaError", "ClientError"),
)


class Secured(NamedTuple):
    running: RunningBroker
    authority: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    running = RunningBroker(
        tmp_path_factory.mktemp("broker"),
        listeners=("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0"),
        ssl_keystore_location=certificates.keystore,
        group_initial_rebalance_delay_ms=0,
    )
    yield Secured(running, certificates.authority)
    running.stop()


def run(source: str, program: str, site: tuple[object, ...]) -> list[tuple[object, ...]]:
    """What the program prints."""
    printed: list[tuple[object, ...]] = []
    names: dict[str, Any] = {"__name__": program, "print": lambda *values: printed.append(values)}
    exec(source, names)

    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await names[program](names["Site"](*site))

    asyncio.run(limited())
    return printed


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_aiokafka_does_the_same_with_our_names(secured: Secured, program: str) -> None:
    renamed = SOURCE
    for theirs, ours in OUR_NAMES:
        renamed = re.sub(theirs, ours, renamed)
    servers = [f"127.0.0.1:{port}" for port in secured.running.broker.ports.values()]
    printed = []
    for source in (SOURCE, renamed):
        topic = f"{program}-{len(printed)}"
        AioKafka().create_topics(servers[0], {topic: 3, f"{topic}-out": 1})
        printed.append(run(source, program, (*servers, secured.authority, topic, f"{topic}-absent")))
    assert printed[0]
    assert printed[1] == printed[0]
