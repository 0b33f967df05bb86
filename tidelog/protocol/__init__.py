"""Kafka's protocol: bytes to values and back. No I/O, no clock, no event loop."""
