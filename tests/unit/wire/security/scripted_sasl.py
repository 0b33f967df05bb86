"""The side of the broker in SASL, by the library scramp: which answers a test wants, it changes."""

from typing import Any

from scramp import ScramException, ScramMechanism

from tests.unit.wire.scripted import Answer, Request, ScriptedBroker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

USER, PASSWORD = "alice", "hunter2"
TOKEN = "e30.tok-en"


class Sasl:
    """`lifetimes_ms` are those of the sessions in turn; after the last, sessions do not end."""

    def __init__(self, broker: ScriptedBroker, *mechanisms: str, password: str = PASSWORD) -> None:
        self.mechanisms = mechanisms
        self.password = password
        self.lifetimes_ms: list[int] = []
        self.messages: list[bytes] = []
        self.iterations = 4096
        self.forged_signature = False
        self._scram: dict[int, Any] = {}
        broker.scripts[ApiKey.SASL_HANDSHAKE] = self.handshake
        broker.scripts[ApiKey.SASL_AUTHENTICATE] = self.authenticate

    def handshake(self, request: Request) -> Answer:
        mechanism = request.values.mechanism
        is_known = mechanism in self.mechanisms
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if is_known and mechanism.startswith("SCRAM"):
            made = ScramMechanism(mechanism)
            known = made.make_auth_info(self.password, self.iterations)
            self._scram[request.connection] = made.make_server(lambda user: known)
        else:
            self._scram.pop(request.connection, None)
        return {"error_code": code, "mechanisms": list(self.mechanisms)}

    def authenticate(self, request: Request) -> Answer:
        message = bytes(request.values.auth_bytes)
        self.messages.append(message)
        server = self._scram.get(request.connection)
        if server is not None:
            return self._answer_scram(server, message.decode())
        good = (f"\0{USER}\0{self.password}".encode(), f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode())
        if message in good:
            return self.accepted()
        if message.startswith(b"n,,"):
            return {"error_code": 0, "error_message": None, "auth_bytes": b'{"status":"invalid_token"}'}
        return self.refused()

    def _answer_scram(self, server: Any, message: str) -> Answer:
        if server.stage is None:
            server.set_client_first(message)
            return {"error_code": 0, "error_message": None, "auth_bytes": server.get_server_first().encode()}
        try:
            server.set_client_final(message)
        except ScramException:
            return self.refused()
        final = b"v=" + b"A" * 44 if self.forged_signature else server.get_server_final().encode()
        return self.accepted(final)

    def accepted(self, auth_bytes: bytes = b"") -> Answer:
        lifetime_ms = self.lifetimes_ms.pop(0) if self.lifetimes_ms else 0
        return {
            "error_code": 0,
            "error_message": None,
            "auth_bytes": auth_bytes,
            "session_lifetime_ms": lifetime_ms,
        }

    @staticmethod
    def refused() -> Answer:
        return {
            "error_code": ErrorCode.SASL_AUTHENTICATION_FAILED,
            "error_message": "Authentication failed",
            "auth_bytes": b"",
        }


def user(mechanism: str, **settings: object) -> dict[str, object]:
    """Settings of the user that `Sasl` knows."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        **settings,
    }
