"""Security of a client's side of the wire: TLS and SASL."""
