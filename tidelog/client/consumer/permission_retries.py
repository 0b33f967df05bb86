"""Tries again what was forbidden, since it may be allowed later.

Owns when: `retry_backoff_max_ms` after each refusal. For one event loop.
"""

import asyncio
from collections.abc import Callable

from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.wire.errors import AuthorizationError, ClientError


class PermissionRetries:
    """`on_retry` is called when a reader continues."""

    def __init__(self, delay_ms: int, on_retry: Callable[[], None]) -> None:
        self._delay_ms = delay_ms
        self._on_retry = on_retry

    def failed(self, reader: PartitionReader, error: ClientError) -> None:
        """A reader got an error; only one of authorization is tried again."""
        if isinstance(error, AuthorizationError):
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay_ms / 1000, self._retry, reader, error)

    def _retry(self, reader: PartitionReader, error: ClientError) -> None:
        if reader.retry(error):
            self._on_retry()
