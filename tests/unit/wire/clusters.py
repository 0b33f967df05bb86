"""Clusters before scripted brokers, with short waits; where nobody listens; waits that are noted."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.wire.scripted import Request
from tidelog.wire.asked_apis import OWN_APIS
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig


@asynccontextmanager
async def opened(
    *servers: str,
    rng: random.Random | None = None,
    start: bool = True,
    allow_auto_create_topics: bool = False,
    **settings: object,
) -> AsyncIterator[Cluster]:
    quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "request_timeout_ms": 5_000}
    config = ClusterConfig(list(servers), **{**quick, **settings})  # type: ignore[arg-type]
    cluster = Cluster(config, OWN_APIS, rng, allow_auto_create_topics=allow_auto_create_topics)
    try:
        if start:
            await cluster.start()
        yield cluster
    finally:
        await cluster.close()


class Noted:
    """A back-off that hardly waits and remembers after how many failures it was asked."""

    def __init__(self) -> None:
        self.failures: list[int] = []

    def delay_ms(self, failures: int) -> int:
        self.failures.append(failures)
        return 1


def cut(_: Request) -> None:
    raise ConnectionError
