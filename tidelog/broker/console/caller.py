"""Who asks: what they may do, and requests to the broker's handlers in their name.

Owns the way from the console to the handlers of Kafka's APIs, so each rule of a change stays in its handler.

Invariant: a caller may do here exactly what a client with the same principal and address may do.
"""

from collections.abc import Mapping
from types import GeneratorType
from typing import Any, Final

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.broker_config import HTTP_LISTENER
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.connection_state import USER, ConnectionState, Principal
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.broker.limits.turns import Turns
from tidelog.broker.security.required_access import OF_CLUSTER, Need, Right
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.schema import ApiKey, encode_request, request_codec
from tidelog.protocol.steps import in_steps

CLIENT_ID: Final = "tidelog-console"
_NO_CONNECTION: Final = -1


class Caller:
    """Acts for one request's user: checks permissions, and asks the broker's handlers in that name."""

    def __init__(
        self, user: str, host: str, access: AccessControl, handlers: Mapping[ApiKey, Handler], turns: Turns
    ) -> None:
        self.user = user
        self.host = host
        self._access = access
        self._handlers = handlers
        self._turns = turns
        listener = Listener(HTTP_LISTENER, "", 0)
        self._connection = ConnectionState(_NO_CONNECTION, listener, SecurityProtocol.PLAINTEXT, host)
        self._connection.principal = Principal(USER, user)
        self._context = self._context_of(ApiKey.METADATA)

    def _context_of(self, api_key: ApiKey) -> RequestContext:
        header = RequestHeader(api_key, SERVED_APIS[api_key].last, 0, CLIENT_ID)
        return RequestContext(header, self._connection)

    def may(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller has this right: for what is only left out of an answer."""
        return self._access.shows(self._context, right, name)

    def check(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raise ApiError, as `right` says, unless the caller has it. A refusal is counted."""
        self._access.check(self._context, right, name)

    def check_needs(self, needs: tuple[Need, ...], parameters: object) -> None:
        """Raise ApiError unless the caller has what a whole request needs."""
        for need in needs:
            name = CLUSTER_NAME if need.field == OF_CLUSTER else getattr(parameters, need.field)
            if name is not None and not self._access.allows_one(self._context, need.rights, name):
                raise ApiError(need.refusal)

    def has_needs(self, needs: tuple[Need, ...]) -> bool:
        """Whether the caller has the rights on the cluster that a whole request needs."""
        wanted = (need.rights for need in needs if need.field == OF_CLUSTER)
        return all(any(map(self.may, rights)) for rights in wanted)

    async def ask(self, api_key: ApiKey, fields: Mapping[str, object]) -> Any:
        """As `request`; fields that are left out have their defaults."""
        version = SERVED_APIS[api_key].last
        body = encode_request(api_key, version, fields)
        steps = in_steps(request_codec(api_key, version).decode_steps(body))
        return await self.request(api_key, await self._turns.run(steps))

    async def change(self, api_key: ApiKey, fields: Mapping[str, object]) -> Any:
        """As `ask`. Raises ApiError also for the first error code of a part of the answer."""
        answer = await self.ask(api_key, fields)
        check_parts(answer)
        return answer

    async def request(self, api_key: ApiKey, values: Any) -> Any:
        """What the handler of a Kafka API answers, in its latest version here.

        `values` are those of a decoded request, complete. Raises ApiError for a refusal of the whole request;
        codes in parts of an answer are for `check_parts`.
        """
        result = self._handlers[api_key](self._context_of(api_key), values)
        while True:
            if isinstance(result, GeneratorType):
                result = await self._turns.run(result)
            elif isinstance(result, Exception):
                raise again(result)
            elif hasattr(result, "__await__"):
                result = await result
            else:
                return result


def check_parts(part: Any) -> None:
    """Raise ApiError for the first error code in an answer of a Kafka API, or in a part of one."""
    if isinstance(part, Mapping):
        check_code(part.get("error_code", 0), part.get("error_message"))
    for each in part.values() if isinstance(part, Mapping) else part:
        if isinstance(each, Mapping | list | tuple):
            check_parts(each)


def check_code(code: int, message: str | None = None) -> None:
    """Raise ApiError for the error code of a part of an answer, if it is one."""
    if code:
        error = ErrorCode(code)
        raise ApiError(error, message or error.message)
