"""Coordinators: pure machines that take facts and `now_ms` and return decisions, and an asyncio runtime."""
