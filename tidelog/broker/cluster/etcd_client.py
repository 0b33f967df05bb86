"""Requests to etcd over its JSON gateway, at any of several endpoints.

Owns the connections, the token of the user, and which errors mean that another endpoint may answer.

Invariants: a request without an answer may have taken effect, so every request must be safe to repeat; a
request is sent until an endpoint answers or the patience ends; a stream that stops without an end is noticed
by its reader, not here, because neither TCP nor HTTP notices a member that was stopped.

JSON of etcd: numbers of 64 bits are text, keys and values base64, what is 0 or empty is left out.

Event loop only.
Source: etcd's rpc.proto, and the codes of google.golang.org/grpc/codes.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp

from tidelog.broker.cluster.store import StoreError

_REQUEST_S: Final = 2.0
"""How long one endpoint may take: longer than an election, shorter than a client's patience."""
_PAUSE_S: Final = 0.05
_MAX_LINE_BYTES: Final = 64 << 20
_COMPACTED: Final = 11
_UNAUTHENTICATED: Final = 16
_RETRIABLE: Final = (1, 4, 10, 14)
"""CANCELLED, DEADLINE_EXCEEDED, ABORTED, UNAVAILABLE: no leader, or one that lost its majority."""
_UNKNOWN: Final = 2


class EtcdCompacted(Exception):
    """What was asked for is of a revision that etcd does not keep any more."""


class EtcdUnavailable(StoreError):
    """No endpoint answered in time. The request may have taken effect."""


class _Retry(Exception):
    """This endpoint does not answer as it is now."""


class EtcdClient:
    """Sends one broker's requests to etcd, at the next endpoint if one fails. Close it at the end."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        user: str = "",
        password: str = "",
        ssl_context: ssl.SSLContext | None = None,
        patience_s: float = 5.0,
    ) -> None:
        """`endpoints` are URLs such as https://host:2379. `patience_s`: how long a request is tried."""
        self.endpoints = tuple(endpoint.rstrip("/") for endpoint in endpoints)
        self._user, self._password = user, password
        self._ssl = ssl_context if ssl_context is not None else True
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None
        self._tokens: dict[str, str] = {}
        self._next = 0
        """Requests go first to the endpoint that answered last."""

    async def call(self, path: str, body: Mapping[str, object], *, timeout_s: float = _REQUEST_S) -> Any:
        """The answer to a POST. `timeout_s`: how long one endpoint may take.

        Raises EtcdCompacted, EtcdUnavailable, and StoreError for what every endpoint would refuse.
        """
        deadline = time.monotonic() + self._patience_s
        at = self._next
        while True:
            try:
                url = self.endpoints[at % len(self.endpoints)]
                answer = await self._post(url, path, body, await self._headers(url), timeout_s)
            except _Retry as error:
                problem = str(error)
            else:
                self._next = at
                return answer
            if time.monotonic() + _PAUSE_S > deadline:
                raise EtcdUnavailable(
                    f"etcd gave no answer within {self._patience_s:g} s: {problem}; check that most of its"
                    f" members run, and that cluster.store names them ({', '.join(self.endpoints)})"
                )
            await asyncio.sleep(_PAUSE_S)
            at += 1

    async def stream(
        self, path: str, body: Mapping[str, object], endpoint: int
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """What an endpoint sends, one JSON object per line.

        Raises EtcdCompacted, EtcdUnavailable, StoreError.
        """
        url = self.endpoints[endpoint % len(self.endpoints)]
        # As aiohttp's reader of lines has a limit, lines are split here.
        pending = bytearray()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_S)
        try:
            headers = await self._headers(url)
            async with self._http().post(
                url + path, json=body, headers=headers, ssl=self._ssl, timeout=timeout
            ) as response:
                if response.status != 200:
                    self._refused(url, await response.text())
                async for chunk in response.content.iter_any():
                    pending += chunk
                    *lines, rest = pending.split(b"\n")
                    pending = bytearray(rest)
                    if len(pending) > _MAX_LINE_BYTES:
                        raise StoreError(f"etcd at {url} sends a line of more than {_MAX_LINE_BYTES} bytes")
                    for line in filter(None, lines):
                        message = json.loads(line)
                        if "error" in message:
                            self._refused(url, json.dumps(message["error"]))
                        yield message["result"]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, _Retry) as error:
            raise EtcdUnavailable(f"the watch at {url} ended: {error!r}") from error

    async def status(self, url: str) -> Any:
        """What one member says of itself. Raises EtcdUnavailable, and StoreError if it refuses."""
        try:
            return await self._post(url, "/v3/maintenance/status", {}, await self._headers(url))
        except _Retry as error:
            raise EtcdUnavailable(str(error)) from error

    async def metrics(self, url: str) -> str:
        """Of one member. Raises EtcdUnavailable."""
        timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
        try:
            async with self._http().get(f"{url}/metrics", ssl=self._ssl, timeout=timeout) as response:
                return await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EtcdUnavailable(f"{url} gives no metrics: {error!r}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._session

    async def _post(
        self,
        url: str,
        path: str,
        body: Mapping[str, object],
        headers: Mapping[str, str],
        timeout_s: float = _REQUEST_S,
    ) -> Any:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._http().post(
                url + path, json=body, headers=headers, ssl=self._ssl, timeout=timeout
            ) as response:
                text = await response.text()
                if response.status != 200:
                    self._refused(url, text)
                return json.loads(text)
        except aiohttp.ClientSSLError as error:
            raise StoreError(
                f"TLS with etcd at {url} failed: {error}; check cluster.store.ssl.truststore.location"
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = getattr(error, "os_error", error)  # Else aiohttp shows its own objects.
            raise _Retry(f"{url}: {str(reason) or type(reason).__name__}") from error

    async def _headers(self, url: str) -> dict[str, str]:
        if not self._user:
            return {}
        if url not in self._tokens:
            body = {"name": self._user, "password": self._password}
            answer = await self._post(url, "/v3/auth/authenticate", body, {})
            self._tokens[url] = answer["token"]
        return {"Authorization": self._tokens[url]}

    def _refused(self, url: str, text: str) -> None:
        """Raise what an answer that is no success means."""
        fields: dict[str, Any] = {}
        with suppress(ValueError):
            decoded = json.loads(text)
            fields = decoded if isinstance(decoded, dict) else {}
        code = fields.get("code", fields.get("grpc_code", _UNKNOWN))
        said = str(fields.get("message") or fields.get("error") or text[:200])
        if code == _COMPACTED or "required revision has been compacted" in said:
            raise EtcdCompacted(said)
        if code == _UNAUTHENTICATED or "invalid auth token" in said:
            # A restarted member does not know earlier tokens.
            self._tokens.pop(url, None)
            raise _Retry(f"{url}: {said}")
        if code in _RETRIABLE or not fields or (code == _UNKNOWN and "auth" not in said):
            raise _Retry(f"{url}: {said}")
        raise StoreError(f"etcd at {url} refused: {said}. {_advice(said)}")


def _advice(said: str) -> str:
    if "space exceeded" in said:
        return "Compact and defragment etcd, then disarm its alarm"
    if "too large" in said or "larger than max" in said:
        return "Start etcd with a larger --max-request-bytes, or ask for less at once"
    if "user name is empty" in said or "authentication failed" in said or "permission denied" in said:
        return "Check cluster.store.user and cluster.store.password, and the role of that user"
    return "Check the log of etcd"
