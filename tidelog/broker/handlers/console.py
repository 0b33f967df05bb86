"""AskConsole: another broker asks for this one's part of what its console shows or changes.

Owns who may name the visitor. Invariant: only a super user may name another user than itself, and a broker is
one that authenticates by the secret of the cluster. With ClusterAction alone, its holder would be anyone. The
console answers with the rights of the visitor, which it checks again.
"""

from __future__ import annotations

from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import CLUSTER_ACTION
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf


class ConsoleHandler(GuardedHandler):
    """Serves AskConsole 0."""

    async def ask_console(
        self, context: RequestContext, request: types.AskConsoleRequest
    ) -> DictOf[types.AskConsoleResponse]:
        console = self._services.console
        if console is None or self._services.membership is None:
            message = "this broker has no console (console.enable=false), or is alone"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        principal = context.connection.principal
        if request.user != principal.name and not self._access.is_super(context):
            self._access.refused(context, CLUSTER_ACTION, CLUSTER_NAME)
            raise ApiError(CLUSTER_ACTION.refusal)
        return await console.answer_peer(request, f"{principal.type}:{principal.name}")
