"""SaslHandshake and SaslAuthenticate: the authentication of a client.

Declarations only. Source: the JSON definitions of the same names (KIP-43, KIP-152, KIP-368).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message

SASL_HANDSHAKE_REQUEST = message("SaslHandshakeRequest", "2+", Field("mechanism", "string"))

SASL_HANDSHAKE_RESPONSE = message(
    "SaslHandshakeResponse", "2+", Field("error_code", "int16"), Field("mechanisms", "[]string")
)

SASL_AUTHENTICATE_REQUEST = message("SaslAuthenticateRequest", "2+", Field("auth_bytes", "bytes"))

SASL_AUTHENTICATE_RESPONSE = message(
    "SaslAuthenticateResponse",
    "2+",
    *ERROR,
    Field("auth_bytes", "bytes"),
    Field("session_lifetime_ms", "int64", "1+", ignorable=True),
)
