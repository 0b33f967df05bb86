"""Security of a client's side of the wire: TLS and SASL.

- `authentication`: authentication of a connection, and again before its session ends
- `client_credentials`: tokens by the client credentials grant of OAuth 2
- `mechanisms`: SASL mechanisms of a client: which bytes it sends, and when it trusts the broker
- `tls`: TLS of a client: the context that the settings describe, and what a failed handshake means
"""
