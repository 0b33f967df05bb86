"""The keys with which tokens are signed: a JWK set from a file or a URL, read again and again.

Owns when the set is read: at the start, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and soon after a
token that names an unknown key. Invariants: no authentication waits for a read; a read that fails leaves the
keys as they are; whatever clients send, reads are at least `retry.backoff.max.ms` apart; a set has at most 1
MiB and is read within ten seconds.

On the event loop.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.tasks import Tasks, is_set_within

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

logger = structlog.get_logger(__name__)
_MOST_BYTES: Final = 1 << 20
_SECONDS: Final = 10.0
_ADVICE: Final = "tokens are still checked with the earlier keys; check sasl.oauthbearer.jwks.endpoint.url"


class KeysError(Exception):
    """The file with the keys cannot be used; the message is for users."""


class KeySource(NamedTuple):
    """Where the keys are, and when they are read."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> KeySource:
        return cls(
            config.sasl_oauthbearer_jwks_endpoint_url,
            config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )


class SigningKeys:
    """Reads the keys of one issuer, and keeps them up to date."""

    def __init__(self, source: KeySource) -> None:
        self.source = source
        url = urlsplit(source.url)
        self._url = source.url
        self._path = Path(unquote(url.path)) if url.scheme == "file" else None
        self._shown = f"{url.scheme}://{url.hostname or ''}{url.path}"
        self._refresh_seconds = source.refresh_ms / 1000
        self._first_pause_seconds = source.retry_backoff_ms / 1000
        self._longest_pause_seconds = source.retry_backoff_max_ms / 1000
        self._wanted = asyncio.Event()
        self._tasks = Tasks()
        self.keys: KeySet | None = None
        """None until the set was read for the first time."""

    async def start(self) -> None:
        """Read a file; begin to read a URL. Raises KeysError."""
        if not self._url:
            raise KeysError("OAUTHBEARER needs the keys of tokens: set sasl.oauthbearer.jwks.endpoint.url")
        if self._path is not None:
            try:
                await self._read()
            except (OSError, ValueError) as error:
                raise KeysError(
                    f"sasl.oauthbearer.jwks.endpoint.url names {self._path}, which cannot be used: {error}"
                ) from None
        self._tasks.begin(self._keep_reading())

    def ask_again(self) -> None:
        """A token names a key that is not in the set."""
        self._wanted.set()

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _keep_reading(self) -> None:
        failures = 0
        if self.keys is not None:
            await self._pause()
        while True:
            try:
                await self._read()
                failures = 0
            except Exception as error:
                failures += 1
                logger.warning(
                    "signing_keys_not_read",
                    url=self._shown,
                    error=_text(error),
                    failures=failures,
                    advice=_ADVICE,
                )
            if failures:
                pause = self._first_pause_seconds * 2 ** min(failures - 1, 20)
                await asyncio.sleep(min(pause, self._longest_pause_seconds))
            else:
                await self._pause()

    async def _pause(self) -> None:
        """Until the next read is due or wanted."""
        await asyncio.sleep(min(self._longest_pause_seconds, self._refresh_seconds))
        remaining = max(self._refresh_seconds - self._longest_pause_seconds, 0)
        await is_set_within(self._wanted, remaining)
        self._wanted.clear()

    async def _read(self) -> None:
        """Raises OSError, ValueError, TimeoutError, aiohttp.ClientError; then the keys are as before."""
        from tidelog.broker.security.tokens import key_set

        path = self._path
        text = await (self._fetched() if path is None else asyncio.to_thread(_file, path))
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        self.keys = await asyncio.to_thread(key_set, text)

    async def _fetched(self) -> bytes:
        import aiohttp

        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession() as session,
            session.get(self._url, max_redirects=3) as answer,
        ):
            answer.raise_for_status()
            text = b""
            async for piece in answer.content.iter_chunked(1 << 16):
                text += piece
                if len(text) > _MOST_BYTES:
                    break
            return text


def _file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _text(error: Exception) -> str:
    """An error without the URL, which may hold a secret."""
    status = getattr(error, "status", None)
    return f"{type(error).__name__} {status}" if status else f"{type(error).__name__}"
