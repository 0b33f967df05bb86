"""The repetition of a request whose error may pass.

Owns: how long is waited after each failure, and when it is enough. Invariants: the waits grow, and the last
attempt begins within request_timeout_ms.
"""

import asyncio

from tidelog.wire.backoff import Backoff
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import ClientError, RequestTimeoutError


class Retries:
    """Of one request, from now on."""

    def __init__(self, config: ClusterConfig) -> None:
        self.failures = 0
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._timeout_ms = config.request_timeout_ms
        self._deadline = asyncio.get_running_loop().time() + config.request_timeout_ms / 1000

    async def wait(self, error: ClientError, what: str = "", most_ms: int | None = None) -> None:
        """Return when the request may be repeated, after `most_ms` at the latest. Raises `error` if it is not
        retriable. If the time is over, raises RequestTimeoutError, which says `what` is missing, or `error`
        without a text."""
        if not error.retriable:
            raise error
        self.failures += 1
        delay_ms = self._backoff.delay_ms(self.failures)
        delay_s = (delay_ms if most_ms is None else min(delay_ms, most_ms)) / 1000
        if asyncio.get_running_loop().time() + delay_s > self._deadline:
            if not what:
                raise error
            raise RequestTimeoutError(f"{what} within {self._timeout_ms} ms ({error})") from error
        await asyncio.sleep(delay_s)
