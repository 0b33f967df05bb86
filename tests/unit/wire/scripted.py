"""A broker that does what a test tells it: real frames over a real socket, answers from a script."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from ssl import SSLContext
from typing import Any, NamedTuple, Self

from tidelog.protocol.framing import decode_request_header, encode_response_frame
from tidelog.protocol.schema import APIS, ApiKey, decode_request, encode_response

TOPIC = "t"


class Request(NamedTuple):
    """What arrived: `values` is the decoded body, `connection` counts from 0."""

    api_key: int
    version: int
    values: Any
    connection: int


Answer = Mapping[str, object] | None
Script = Callable[[Request], Awaitable[Answer] | Answer]
"""Gives the answer's values, None to stay silent; raises ConnectionError to cut the connection."""


class ScriptedBroker:
    """One node that leads every partition of topic "t". `scripts` by API key override the usual answers."""

    def __init__(self, partitions: int = 1, **versions: tuple[int, int]) -> None:
        self.requests: list[Request] = []
        self.scripts: dict[ApiKey, Script] = {}
        self.partitions = partitions
        self.connections = 0
        self.versions = versions
        self.port = 0
        self._server: asyncio.Server | None = None
        # Whether requests are answered as their scripts end, not one after the other.
        self.is_concurrent = False
        # TLS, if there is a context.
        self.ssl: SSLContext | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.ssl)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def seen(self, api_key: ApiKey) -> list[Request]:
        return [request for request in self.requests if request.api_key == api_key]

    def hold(self, api_key: ApiKey) -> asyncio.Event:
        """Answer requests of this API as usual, but only when the event is set."""
        release = asyncio.Event()

        async def script(request: Request) -> Answer:
            await release.wait()
            return self._usual(request)

        self.scripts[api_key] = script
        return release

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        self._writers.add(writer)
        try:
            while not writer.is_closing():
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if self.is_concurrent:
                    task = asyncio.ensure_future(self._answer(frame, writer, number))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                else:
                    await self._answer(frame, writer, number)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter, number: int) -> None:
        header, start = decode_request_header(memoryview(frame))
        key, version = ApiKey(header.api_key), header.api_version
        request = Request(key, version, decode_request(key, version, frame[start:]), number)
        self.requests.append(request)
        script = self.scripts.get(key, self._usual)
        values = script(request)
        if asyncio.iscoroutine(values) or isinstance(values, asyncio.Future):
            values = await values
        if values is None:
            return
        given: dict[str, Any] = dict(values)  # type: ignore[arg-type]
        body = encode_response(key, given.pop("_version", version), given)
        writer.writelines(encode_response_frame(key, version, header.correlation_id, body))

    def _usual(self, request: Request) -> Answer:
        if request.api_key == ApiKey.API_VERSIONS:
            return {"api_keys": self._api_keys()}
        if request.api_key == ApiKey.METADATA:
            return self.metadata([each.name for each in request.values.topics or []])
        if request.api_key == ApiKey.INIT_PRODUCER_ID:
            return {"error_code": 0, "producer_id": 5, "producer_epoch": 0}
        if request.api_key == ApiKey.PRODUCE:
            return self.produced(request)
        if request.api_key == ApiKey.GET_TELEMETRY_SUBSCRIPTIONS:
            return {"push_interval_ms": 300_000}
        raise AssertionError(f"no script for {APIS[ApiKey(request.api_key)].name}")

    def _api_keys(self) -> list[dict[str, int]]:
        """All that has codecs, in the versions that the test chose."""
        keys = []
        for api in APIS.values():
            first, last = self.versions.get(api.name, (api.min_version, api.max_version))
            keys.append({"api_key": int(api.key), "min_version": first, "max_version": last})
        return keys

    def metadata(self, names: list[str], leader: int = 1, error_code: int = 0) -> dict[str, object]:
        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port, "rack": None}],
            "cluster_id": "scripted",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": error_code,
                    "name": name,
                    "partitions": [
                        {
                            "error_code": 0,
                            "partition_index": index,
                            "leader_id": leader,
                            "replica_nodes": [1],
                            "isr_nodes": [1],
                        }
                        for index in range(0 if error_code else self.partitions)
                    ],
                }
                for name in names
            ],
        }

    @staticmethod
    def produced(request: Request, error_code: int = 0, base_offset: int = 0) -> dict[str, Any]:
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [
                        {
                            "index": partition.index,
                            "error_code": error_code,
                            "base_offset": -1 if error_code else base_offset,
                            "log_append_time_ms": -1,
                        }
                        for partition in topic.partition_data
                    ],
                }
                for topic in request.values.topic_data
            ]
        }
