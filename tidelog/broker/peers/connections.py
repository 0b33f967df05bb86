"""The connections of this broker to others: at most one per address and lane.

Owns which APIs are asked for, and the tasks that open connections. Invariant: every error is a ClientError.

On the event loop.
"""

import asyncio
import random
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.peers.connection_settings import connection_settings
from tidelog.broker.tasks import Tasks
from tidelog.protocol.hot import FetchRequest, FetchResponse, decode_fetch_response, encode_fetch_request
from tidelog.protocol.schema import ApiKey
from tidelog.wire.asked_apis import OWN_APIS, AskedApis, Versions
from tidelog.wire.errors import AuthenticationError, ClientClosedError, ClientError
from tidelog.wire.links import Address, Links
from tidelog.wire.metrics import RequestMetrics

__all__ = ["AuthenticationError", "ClientError", "Connections"]
ASKED_APIS: Final[AskedApis] = OWN_APIS | {
    ApiKey.FETCH_SNAPSHOT: Versions(0, 1),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(4, 4),
    # Version 4 is the first for brokers. Later ones only have other codes for clients.
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions(4, 4),
    ApiKey.WRITE_TXN_MARKERS: Versions(1, 2),
    ApiKey.ASK_CONSOLE: Versions(0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Versions(1, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: Versions(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Versions(1, 1),
    ApiKey.LIST_OFFSETS: Versions(7, 7),
    # Of dead letters, whose topics share groups name.
    ApiKey.PRODUCE: Versions(12, 12),
    # The first with topic ids, and with the start of a follower, that needs no more than Kafka 3.7.
    ApiKey.FETCH: Versions(17, 17),
}

_FETCH_LANE: Final = "fetch"
_WATCH_LANE: Final = "watch"


class Connections:
    """Opens and keeps one broker's connections to others. Raises ConfigError or OSError where its settings do
    not suffice."""

    def __init__(self, config: BrokerConfig, password: str) -> None:
        self._tasks = Tasks()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when a connection is lost or cannot be opened; then another one takes its place."""
        self._links = Links(
            connection_settings(config, password),
            ASKED_APIS,
            RequestMetrics(),
            random.Random(),
            spawn=partial(self._tasks.task, is_awaited=True),
            on_change=lambda: None,
            on_trouble=self._troubled,
        )

    async def call(
        self, host: str, port: int, api_key: ApiKey, values: Mapping[str, object], lane: str = ""
    ) -> Any:
        """The decoded answer. Raises ClientError; the request may have been executed."""
        connection = await self._links.connected(Address(host, port, lane))
        return await connection.call(api_key, values)

    async def fetch(self, host: str, port: int, request: FetchRequest) -> FetchResponse:
        """The answer to a follower's request. Raises ClientError. If cancelled, the connection is closed, so
        that the leader gives the request up."""
        connection = await self._links.connected(Address(host, port, _FETCH_LANE))
        version = connection.version(ApiKey.FETCH)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def handle(body: memoryview | None, error: ClientError | None) -> None:
            if answer.done():
                return
            if body is not None:
                answer.set_result(bytes(body))
            elif error is not None:
                answer.set_exception(error)

        connection.send(ApiKey.FETCH, version, encode_fetch_request(version, request), handle)
        try:
            return decode_fetch_response(version, await answer)
        except asyncio.CancelledError:
            connection.close()
            raise

    async def until_refused(self, host: str, port: int, *, has_to_answer: bool) -> None:
        """Return when no process listens at an address; with `has_to_answer` only if it answered before.

        Raises ClientError."""
        address, has_answered = Address(host, port, _WATCH_LANE), not has_to_answer
        while True:
            try:
                connection = await self._links.connected(address)
                has_answered = True
                while connection.is_open:
                    await asyncio.shield(self._trouble)
            except ClientClosedError:
                raise
            except ClientError as error:
                if has_answered and isinstance(error.__cause__, ConnectionRefusedError):
                    return

    def _troubled(self) -> None:
        trouble, self._trouble = self._trouble, asyncio.get_running_loop().create_future()
        trouble.set_result(None)

    def keep_only(self, wanted: set[tuple[str, int]]) -> None:
        """Close the connections to all other addresses."""
        self._links.keep_only(wanted)

    async def close(self) -> None:
        """Close every connection; calls under way raise ClientClosedError."""
        self._links.close()
        await self._tasks.cancel()
