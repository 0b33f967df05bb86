"""What /metrics shows of clients that push theirs, and the subscription that makes them push."""

import asyncio
import urllib.request
from collections.abc import Callable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin, ConfigResource, ConfigResourceType

INTERVAL_MS = 100
_POLL_SECONDS = 0.05


async def subscribe(admin: Admin, metrics: str = "*", interval_ms: int = INTERVAL_MS) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
    await admin.alter_configs({resource: {"metrics": metrics, "interval.ms": str(interval_ms)}})


def shown(http_port: int | None, client_id: str) -> Mapping[str, float]:
    """Name of each sample of a client -> its largest value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("client_id") == client_id:
                found[sample.name] = max(sample.value, found.get(sample.name, sample.value))
    return found


async def until_shown(http_port: int | None, client_id: str, name: str, least: float) -> Mapping[str, float]:
    """What is shown of a client, once this sample is at least so large."""
    return await _until(http_port, client_id, lambda found: found.get(name, -1.0) >= least)


async def until_gone(http_port: int | None, client_id: str) -> None:
    """Return once nothing is shown of a client: it has said that it ends."""
    await _until(http_port, client_id, lambda found: not found)


async def _until(
    http_port: int | None, client_id: str, is_reached: Callable[[Mapping[str, float]], bool]
) -> Mapping[str, float]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            found = await asyncio.to_thread(shown, http_port, client_id)
            if is_reached(found):
                return found
            await asyncio.sleep(_POLL_SECONDS)
