"""AskConsole: another broker asks for this one's part of what its console shows or changes.

Owns nothing: the console answers, in the name of the user whom the other broker names. Invariant: only a
broker may ask (CLUSTER_ACTION), because it says who its visitor is, who gets what they would get here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.protocol import message_types as types


class ConsoleHandler:
    """Serves AskConsole 0."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def ask_console(
        self, context: RequestContext, request: types.AskConsoleRequest
    ) -> types.AskConsoleResponseDict:
        console = self._services.console
        if console is None or self._services.membership is None:
            message = "this broker has no console (console.enable=false), or is alone"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        return await console.answer_peer(request)
