"""An endpoint of OpenTelemetry's protocol over HTTP that keeps what it takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector:
    """Takes pushes at `endpoint`, with the status `status`."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 200
        self.taken: asyncio.Queue[ExportMetricsServiceRequest] = asyncio.Queue()

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        pushed = ExportMetricsServiceRequest()
        pushed.ParseFromString(await request.read())
        self.taken.put_nowait(pushed)
        return web.Response(status=self.status, text="x" * 1000)


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made, app = Collector(), web.Application()
    app.router.add_post("/v1/metrics", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/metrics"
        yield made
    finally:
        await runner.cleanup()
