"""How long a request is repeated: until its error does not pass, or request_timeout_ms is over."""

import pytest

from tidelog.client.retries import Retries
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import ClientError, ConnectionLostError, RequestTimeoutError

_CONFIG = ClusterConfig(request_timeout_ms=60_000, retry_backoff_ms=1, retry_backoff_max_ms=1_000_000)


async def test_what_is_not_retriable_is_raised_at_once() -> None:
    with pytest.raises(ClientError, match="refused"):
        await Retries(_CONFIG).wait(ClientError("refused"), "there is no answer")


async def test_an_attempt_that_would_begin_too_late_is_not_waited_for() -> None:
    retries = Retries(_CONFIG)
    await retries.wait(ConnectionLostError("busy"))
    retries.failures = 100  # As many that the next wait takes many minutes.
    with pytest.raises(RequestTimeoutError, match=r"there is no answer within 60000 ms \(busy"):
        await retries.wait(ConnectionLostError("busy"), "there is no answer")
    with pytest.raises(ConnectionLostError, match="busy"):
        await retries.wait(ConnectionLostError("busy"))
    await retries.wait(ConnectionLostError("busy"), most_ms=1)
