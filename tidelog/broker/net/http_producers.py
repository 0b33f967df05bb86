"""/producers on the HTTP port: what partitions remember of idempotent producers, with the cached batches.

`GET /producers?topic=T` (`&partition=N`, `&producer_id=N`, `&limit=N`) answers per partition of the topic how
many producers it knows, and `limit` of them (default 1,000), the latest appended last.

Invariants: reads only; at most `_MOST_PRODUCERS` in one answer, so the loop is not blocked.

Event loop only. Source: the state of KIP-98; KIP-664 beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.broker.handlers.producers import producer_facts
from tidelog.broker.services import Services
from tidelog.broker.storage.producer_table import ProducerEntry
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.sequences import decrement_sequence

if TYPE_CHECKING:
    from aiohttp import web

DEFAULT_LIMIT = 1_000
_MOST_PRODUCERS = 10_000


class ProducerRoutes:
    """The route of one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def add_to(self, application: web.Application) -> None:
        application.router.add_get("/producers", self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        from aiohttp import web

        try:
            status, body = 200, self._describe(request)
        except ValueError as error:
            status, body = 400, {"error": str(error)}
        except ApiError as error:
            status, body = 404, {"error": f"{error.code.name}: {error.message}"}
        return web.json_response(body, status=status)

    def _describe(self, request: web.Request) -> dict[str, Any]:
        name = request.query.get("topic", "")
        topic = self._services.catalog.topic(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        partition = _number(request, "partition")
        producer_id = _number(request, "producer_id")
        left = min(_number(request, "limit") or DEFAULT_LIMIT, _MOST_PRODUCERS)
        indexes: Iterable[int] = range(len(topic.partitions)) if partition is None else (partition,)
        partitions = []
        for index in indexes:
            described = self._partition(name, index, producer_id, left)
            left -= len(described.get("producers", ()))
            partitions.append(described)
        return {
            "cluster_id": self._services.catalog.cluster_id,
            "node_id": self._services.node_id,
            "topic": name,
            "partitions": partitions,
        }

    def _partition(self, topic: str, index: int, producer_id: int | None, limit: int) -> dict[str, Any]:
        try:
            producers = self._services.replica(topic, index).log.producers
        except ApiError as error:
            return {"partition": index, "error": error.code.name, "message": error.message}
        entries: Iterable[ProducerEntry]
        if producer_id is None:
            entries = islice(producers.latest(), limit)
        else:
            found = producers.entry(producer_id)
            entries = () if found is None or not limit else (found,)
        return {
            "partition": index,
            "producer_count": len(producers),
            "producers": [_producer(entry) for entry in entries],
        }


def _producer(entry: ProducerEntry) -> dict[str, Any]:
    return {
        **producer_facts(entry),
        "batches": [
            {
                "base_sequence": decrement_sequence(batch.last_sequence, batch.offset_delta),
                "last_sequence": batch.last_sequence,
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "timestamp": batch.timestamp,
            }
            for batch in entry.batches
        ],
    }


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{name}: expected a whole number, got {text!r}")
    return int(text)
