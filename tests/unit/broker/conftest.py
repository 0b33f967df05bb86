"""A broker's services on the test's folder, without connections."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.opening import open_services
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import Disk

NOW_MS = 1_700_000_000_000
OpenServices = Callable[..., Awaitable[Services]]


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def open_here(tmp_path: Path, clock: Clock) -> AsyncIterator[OpenServices]:
    """Opens services on the test's folder, again and again if wished; closes what is left open."""
    async with AsyncExitStack() as stack:

        async def open_one(*, disk: Disk | None = None, **settings: Any) -> Services:
            config = BrokerConfig(**{"data_dir": tmp_path, **settings})
            services = await open_services(config, Metrics(), clock, disk=disk)
            stack.push_async_callback(services.close)
            return services

        yield open_one
