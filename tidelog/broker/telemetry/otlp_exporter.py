"""Passes on what clients push to an endpoint of OpenTelemetry's protocol over HTTP.

Owns how many pushes wait, and what becomes of those that are not taken: they are dropped. Metrics of clients
are cumulative, so the next push has what a lost one had.

For the event loop only. Source: the specification of OTLP/HTTP, binary protobuf.
"""

import asyncio
from collections import deque
from typing import Final

import structlog

logger = structlog.get_logger(__name__)

MOST_WAITING: Final = 64
"""Pushes, of at most telemetry.max.bytes each. The oldest makes room."""
_TIMEOUT_SECONDS: Final = 10
_HEADERS: Final = {"Content-Type": "application/x-protobuf"}
_MOST_OF_ANSWER: Final = 200


class OtlpExporter:
    """Sends pushes to one endpoint, one at a time."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._work: asyncio.Task[None] | None = None
        self._was_taken = True

    def add(self, push: bytes) -> None:
        """Send an ExportMetricsServiceRequest soon."""
        self._waiting.append(push)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(headers=_HEADERS, timeout=timeout) as session:
            while self._waiting:
                push, problem = self._waiting.popleft(), ""
                try:
                    async with session.post(self._endpoint, data=push) as answer:
                        if answer.status >= 400:
                            text = (await answer.content.read(_MOST_OF_ANSWER)).decode(errors="replace")
                            problem = f"{answer.status} {answer.reason} {text}"
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    problem = str(error) or type(error).__name__
                self._note(problem)

    def _note(self, problem: str) -> None:
        """Log the first of several failures, and the first success after them."""
        was_taken, self._was_taken = self._was_taken, not problem
        if problem and was_taken:
            advice = "check telemetry.otlp.endpoint; metrics that clients push are not passed on meanwhile"
            logger.warning("telemetry_not_exported", endpoint=self._endpoint, error=problem, advice=advice)
        elif not (problem or was_taken):
            logger.info("telemetry_exported_again", endpoint=self._endpoint)

    async def close(self, timeout_seconds: float) -> None:
        """Send what waits, for so long at most."""
        if self._work is not None:
            await asyncio.wait((self._work,), timeout=timeout_seconds)
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
