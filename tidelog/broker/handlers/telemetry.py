"""GetTelemetrySubscriptions and PushTelemetry: the metrics of clients (KIP-714).

Owns what is known of a client that asks. Invariant: `broker.telemetry` is imported with the first request.

Source: Kafka's KafkaApis and ClientMetricsInstanceMetadata.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.limits.client_quotas import MOST_CLIENT_ID_CHARACTERS
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf

if TYPE_CHECKING:
    from tidelog.broker.telemetry.subscriptions import Client
    from tidelog.broker.telemetry.telemetry import Telemetry

_NO_ID: Final = UUID(int=0)


class TelemetryHandler:
    """Serves GetTelemetrySubscriptions 0 and PushTelemetry 0."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def get_telemetry_subscriptions(
        self, context: RequestContext, request: types.GetTelemetrySubscriptionsRequest
    ) -> DictOf[types.GetTelemetrySubscriptionsResponse]:
        instance_id = request.client_instance_id
        if instance_id == _NO_ID:
            instance_id = uuid4()
        telemetry = self._followed(context, instance_id)
        client = _client(context, instance_id)
        return telemetry.subscription(instance_id, client, context.connection.connection_id)

    async def push_telemetry(
        self, context: RequestContext, request: types.PushTelemetryRequest
    ) -> DictOf[types.PushTelemetryResponse]:
        instance_id = request.client_instance_id
        if instance_id == _NO_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        telemetry = self._followed(context, instance_id)
        await telemetry.push(request, _client(context, instance_id), context.connection.connection_id)
        return {"error_code": ErrorCode.NONE}

    def _followed(self, context: RequestContext, instance_id: UUID) -> Telemetry:
        """What clients push, told when this one closes its connection."""
        telemetry, connection = self._services.made_telemetry(), context.connection
        connection.when_closed("telemetry", partial(telemetry.closed, instance_id, connection.connection_id))
        return telemetry


def _client(context: RequestContext, instance_id: UUID) -> Client:
    from tidelog.broker.telemetry.subscriptions import Client

    connection = context.connection
    name, _, version = connection.client_software.partition(" ")
    return Client(
        str(instance_id),
        (context.header.client_id or "")[:MOST_CLIENT_ID_CHARACTERS],
        name,
        version,
        connection.client_host,
        str(connection.client_port),
    )
