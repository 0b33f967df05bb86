"""Connections, from bytes to handlers and back. Only here, errors become error codes."""
