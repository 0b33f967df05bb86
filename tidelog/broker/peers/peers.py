"""Requests of this broker to other brokers, which it knows by their ids.

Owns where another broker is: at the address that the catalog names for its inter-broker listener. Invariants:
nothing is imported or opened before the first request; a request to a broker that the catalog does not have,
or that does not answer, fails with a retriable code, and may have been executed.

On the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.cluster.catalog import NOBODY, BrokerRegistered, Catalog, Change
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.security.broker_user import broker_password
from tidelog.broker.security.unknown_users import STRONGEST
from tidelog.protocol.errors import ApiError, ErrorCode, error_code
from tidelog.protocol.hot import FetchRequest, FetchResponse
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.settings import ConfigError

if TYPE_CHECKING:
    from tidelog.broker.peers.connections import Connections

_SAME_HOST = "127.0.0.1"
_PIECE_BYTES: Final = 8 << 20
_MOST_BYTES: Final = 1 << 30
"""Of a snapshot."""


class Peers:
    """The other brokers of one cluster."""

    def __init__(self, settings: BrokerSettings, catalog: Catalog, events: PeerEvents) -> None:
        self._settings = settings
        self._catalog = catalog
        self._events = events
        self._connections: Connections | None = None
        self._is_closed = False

    def check_settings(self) -> None:
        """Raise ConfigError or OSError unless the settings say how other brokers are reached."""
        from tidelog.broker.peers.connection_settings import connection_settings

        connection_settings(self._settings.config, "no password yet")

    async def call(self, node_id: int, api_key: ApiKey, values: Mapping[str, object], lane: str = "") -> Any:
        """The decoded answer of a broker. Requests of different lanes do not wait for each other's answers.

        Raises ApiError(NETWORK_EXCEPTION).
        """
        return await self._asked(node_id, lambda to, host, port: to.call(host, port, api_key, values, lane))

    async def fetch(self, node_id: int, request: FetchRequest) -> FetchResponse:
        """The answer of a leader, over a connection of its own. Cancelled, it leaves no request behind.

        Raises ApiError(NETWORK_EXCEPTION)."""
        answer: FetchResponse = await self._asked(
            node_id, lambda to, host, port: to.fetch(host, port, request)
        )
        return answer

    async def until_refused(self, node_id: int, has_to_answer: bool) -> None:
        """Return when a live broker's port refuses connections: its process has ended, or ends. With
        `has_to_answer` only if it was reached before.

        Raises ApiError(NETWORK_EXCEPTION)."""
        await self._asked(
            node_id, lambda to, host, port: to.until_refused(host, port, has_to_answer=has_to_answer)
        )

    async def end_of_epoch(
        self, leader_id: int, topic: str, partition: int, leader_epoch: int, epoch: int
    ) -> tuple[int, int]:
        """(epoch, end offset) of the latest epoch up to `epoch` that the leader of `leader_epoch` has, or
        (-1, -1). Raises ApiError."""
        asked = {"partition": partition, "current_leader_epoch": leader_epoch, "leader_epoch": epoch}
        topics = [{"topic": topic, "partitions": [asked]}]
        values = {"replica_id": self._settings.config.node_id, "topics": topics}
        answer = await self.call(leader_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, values)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise ApiError(error_code(found.error_code))
        return found.leader_epoch, found.end_offset

    async def end_of_log(
        self, asked_id: int, topic: str, partition: int, leader_epoch: int
    ) -> tuple[int, int]:
        """(epoch, end offset) of the last record that a broker has of a partition that nobody leads, durably.
        Raises ApiError."""
        return await self.end_of_epoch(asked_id, topic, partition, leader_epoch, leader_epoch)

    async def fetch_snapshot(self, leader_id: int, topic: str, partition: int, leader_epoch: int) -> bytes:
        """What a leader knows of the producers of a partition before its log begins, as
        `LogManager.start_over` takes it: of one moment, and complete. Raises ApiError."""
        pieces = bytearray()
        offset = size = -1
        while len(pieces) != size:
            asked = {
                "partition": partition,
                "current_leader_epoch": leader_epoch,
                "snapshot_id": {"end_offset": offset, "epoch": -1},
                "position": len(pieces),
            }
            answer = await self.call(
                leader_id,
                ApiKey.FETCH_SNAPSHOT,
                {
                    "replica_id": self._settings.config.node_id,
                    "max_bytes": _PIECE_BYTES,
                    "topics": [{"name": topic, "partitions": [asked]}],
                },
            )
            found = None if answer.error_code else answer.topics[0].partitions[0]
            if found is None or found.error_code:
                raise ApiError(error_code(answer.error_code if found is None else found.error_code))
            piece = found.unaligned_records
            is_wrong = found.position != len(pieces) or len(pieces) + len(piece) > found.size
            if not pieces:
                offset, size = found.snapshot_id.end_offset, found.size
            if is_wrong or not piece or size > _MOST_BYTES or found.snapshot_id.end_offset != offset:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"broker {leader_id} sent no snapshot of {topic}-{partition}: bytes {found.position} to"
                    f" {found.position + len(piece)} of {found.size}, after {len(pieces)} of {size}",
                )
            pieces += piece
        return bytes(pieces)

    async def _asked(self, node_id: int, ask: Callable[[Connections, str, int], Awaitable[Any]]) -> Any:
        host, port = self._address_of(node_id)
        connections = self._opened()
        from tidelog.broker.peers.connections import AuthenticationError, ClientError

        try:
            return await ask(connections, host, port)
        except ClientError as error:
            if isinstance(error, AuthenticationError):
                await self._begin_anew(connections)
                advice = (
                    "set a user that the other broker accepts in sasl.jaas.config, or in the "
                    "certificate of the inter-broker listener"
                )
                self._events.error(
                    "broker_not_accepted", host, broker_id=node_id, error=str(error), advice=advice
                )
            raise ApiError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} does not answer: {error.message}"
            ) from error

    async def _begin_anew(self, connections: Connections) -> None:
        """Read the settings' files again before the next request: a certificate may have been renewed."""
        if self._connections is connections:
            self._connections = None
        await connections.close()

    def not_authorized(self, node_id: int, api_key: ApiKey) -> ApiError:
        """The error where a broker refuses to this one what only brokers may ask for."""
        self._events.error(
            "broker_not_authorized",
            "",
            broker_id=node_id,
            request=api_key.name,
            advice="add the user of this broker to super.users; ClusterAction on the cluster suffices for "
            "all but AskConsole and the Produce of dead letters",
        )
        return ApiError(
            ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} refuses {api_key.name} of this broker"
        )

    def _opened(self) -> Connections:
        if self._is_closed:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, "this broker is stopping")
        if self._connections is None:
            from tidelog.broker.peers.connections import Connections

            try:
                self._connections = Connections(self._settings.config, self._password())
            except (ConfigError, OSError) as error:  # A file may have changed since the start.
                advice = "change the settings, and restart the broker: no other broker can be reached"
                self._events.error("peers_not_configured", "", error=str(error), advice=advice)
                raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        return self._connections

    def _password(self) -> str:
        secret = self._catalog.users.get(NOBODY, {}).get(STRONGEST)
        return "" if secret is None else broker_password(secret)

    def _address_of(self, node_id: int) -> tuple[str, int]:
        wanted = self._settings.config.inter_broker_listener.name
        broker = self._catalog.brokers.get(node_id)
        for listener in () if broker is None else broker.listeners:
            if listener.name == wanted:
                return listener.host or _SAME_HOST, listener.port
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {node_id} has no known listener {wanted}")

    def follow(self, change: Change) -> None:
        """Close the connections to addresses without a live broker: a broker that hangs would delay, until
        its timeout, requests that another broker answers now."""
        if self._connections is not None and isinstance(change.delta, BrokerRegistered):
            live = (broker for broker in self._catalog.brokers.values() if not broker.is_fenced)
            others = (listener for broker in live for listener in broker.listeners)
            self._connections.keep_only({(each.host or _SAME_HOST, each.port) for each in others})

    async def close(self) -> None:
        """Requests under way fail."""
        self._is_closed = True
        if self._connections is not None:
            await self._connections.close()
