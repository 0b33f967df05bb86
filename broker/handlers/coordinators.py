"""FindCoordinator: which broker coordinates a group or a transactional id.

Owns the answer. One broker coordinates everything; where its clients are to reach it is what the listener of
the request advertises. librdkafka takes a broker without this API for one that is too old for lz4, and sends
what should be lz4 uncompressed.

Source: Kafka's KafkaApis.handleFindCoordinatorRequest, KIP-699.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.steps import Pace, Steps, each

_KEY_TYPES = {0: "group", 1: "transaction"}
_NOBODY = {"node_id": -1, "host": "", "port": -1}


class CoordinatorsHandler:
    """Serves FindCoordinator 0-5."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def find_coordinator(self, context: RequestContext, request: Any) -> Steps[dict[str, Any]]:
        """One answer for each key, and the first (or only) one by itself, for the versions that know one."""

        def coordinator(key: str) -> dict[str, Any]:
            return {"key": key, **self._coordinator(context, request.key_type)}

        keys = dict.fromkeys(request.coordinator_keys or [request.key])
        answers = yield from each(coordinator, keys, Pace())
        first = {name: value for name, value in answers[0].items() if name != "key"}
        return {**first, "coordinators": answers if request.coordinator_keys else []}

    def _coordinator(self, context: RequestContext, key_type: int) -> dict[str, Any]:
        if key_type not in _KEY_TYPES:
            expected = " or ".join(f"{number} ({name})" for number, name in _KEY_TYPES.items())
            message = f"expected key type {expected}, not {key_type}"
            return {**_NOBODY, "error_code": ErrorCode.INVALID_REQUEST, "error_message": message}
        listener = context.connection.listener
        return {
            "node_id": self._services.node_id,
            "host": listener.host,
            "port": listener.port,
            "error_code": ErrorCode.NONE,
        }
