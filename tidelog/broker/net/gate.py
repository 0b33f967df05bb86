"""The check before the handlers: an API is allowed at the steps of authentication that its row names.

Owns what a refused request is answered, and whether its connection ends. Invariant: pure.

Source: Kafka's SaslServerAuthenticator and KafkaApis.handleSaslHandshakeRequest.
"""

from typing import Final

from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.served_apis import SERVED_APIS, SIGNED_IN
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import APIS, ApiKey

_WHEN: Final = {
    AuthenticationStep.HANDSHAKE: "before SaslHandshake: set security.protocol to SASL_PLAINTEXT or SASL_SSL",
    AuthenticationStep.AUTHENTICATING: "during SASL authentication",
    AuthenticationStep.AUTHENTICATED: "after SASL authentication",
    AuthenticationStep.REAUTHENTICATING: "during SASL re-authentication",
    AuthenticationStep.EXPIRED: "after the session has ended (connections.max.reauth.ms): authenticate again",
    AuthenticationStep.FAILED: "after SASL authentication failed",
}


def refusal(api_key: ApiKey, step: AuthenticationStep) -> ApiError | None:
    """Why this API is refused at this step; None if it is open."""
    if step in SERVED_APIS[api_key].open_at:
        return None
    if step is AuthenticationStep.NOT_REQUIRED:
        reason = "this listener has no SASL: connect with security.protocol=PLAINTEXT or SSL"
    else:
        reason = f"{APIS[api_key].name} is not allowed {_WHEN[step]}"
    return ApiError(ErrorCode.ILLEGAL_SASL_STATE, reason)


def closes(step: AuthenticationStep) -> bool:
    """Whether a request that is refused at this step ends the connection, as in Kafka."""
    return step not in SIGNED_IN
