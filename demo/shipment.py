"""Sends the events through a faulty network, to a broker that is killed meanwhile.

Owns the broker process, the proxy, the producer and the execution of the plan.

Invariants: the producer reaches the broker through the proxy only; each fault of the plan is carried out
before the next begins; the kill happens while five requests are in flight (one without idempotence), which
the proxy causes by holding back acknowledgements.
"""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

from demo.plan import Kind, Step
from demo.wiretap import Wiretap, batches_in
from faults.process import BrokerProcess
from faults.proxy import FaultProxy
from tidelog.client import Admin, ClientError, NewTopic, Producer

TOPIC = "flights"
IN_FLIGHT = 5
_DUPLICATES = "tidelog_duplicate_batches_total"
_HTTP_SECONDS = 60
_REFUSED_MS = 150
_PATIENCE_MS = 100
# What is sent may exceed what is allowed by one chunk: the last fault of a short run would find no traffic.
_CHUNK_ROWS = 100
_LEAD_ROWS, _LEAD_SHARE = 2_000, 20
# Some of the five are then stored and some perhaps not: the producer cannot know which.
_ANSWERED_AT_KILL = 2
_SENT_COLUMNS = ("key", "value", "timestamp_ms")
# Small, so that five requests are in flight when the broker is killed.
_BATCH_BYTES = 16 * 1024
_LINGER_MS = 5


class SabotageError(RuntimeError):
    """A fault of the plan could not be caused, because the necessary traffic did not arrive."""


@dataclass(slots=True)
class Tally:
    """The state of the shipment. Events are records; the proxy and the wiretap count the rest."""

    events: int
    sent: int = 0
    acked: int = 0
    failed: int = 0
    batches: int = 0
    sent_again: int = 0
    recognised: int = 0
    acks_dropped: int = 0
    cut: int = 0
    kills: int = 0
    faults: int = 0
    seconds: float = 0.0


class Site:
    """A broker behind a proxy. `bootstrap_servers` is the proxy's address, which the broker advertises."""

    def __init__(self, broker: BrokerProcess, proxy: FaultProxy) -> None:
        self.broker = broker
        self.proxy = proxy

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.proxy.host}:{self.proxy.port}"

    @property
    def console(self) -> str:
        """The address of the broker's pages."""
        return f"http://{self.proxy.host}:{self.broker.http_port}/console"

    async def duplicates_recognised(self) -> int:
        """How many batches the broker has recognised as already stored since its start."""
        url = f"http://{self.proxy.host}:{self.broker.http_port}/metrics"
        text = await asyncio.to_thread(_get, url)
        families = text_string_to_metric_families(text)
        samples = (sample for family in families for sample in family.samples)
        return int(sum(sample.value for sample in samples if sample.name == _DUPLICATES))


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_HTTP_SECONDS) as answer:
        return str(answer.read().decode())


@asynccontextmanager
async def open_site(data_dir: Path) -> AsyncIterator[Site]:
    """Start a proxy on a free port and a broker behind it; both end with the block, the broker by SIGTERM."""
    async with FaultProxy("127.0.0.1", 0) as proxy:
        settings = {"advertised.host": proxy.host, "advertised.port": proxy.port}
        async with BrokerProcess(data_dir, settings=settings) as broker:
            proxy.retarget(broker.port)
            yield Site(broker, proxy)
            if broker.is_running:
                await broker.terminate()


class Shipment:
    """One run of the producer. `on_change` is called often, `on_event` with a line for each fault."""

    def __init__(
        self,
        site: Site,
        plan: Sequence[Step],
        *,
        idempotent: bool,
        on_change: Callable[[Tally], None],
        on_event: Callable[[str], None],
    ) -> None:
        self._site = site
        self._plan = plan
        self._idempotent = idempotent
        self._on_change = on_change
        self._on_event = on_event
        self._wiretap = Wiretap()
        self._progress = asyncio.Event()
        self._allowed = 0
        self._may_send = asyncio.Event()
        self.tally = Tally(0)

    async def create_topic(self, partitions: int) -> None:
        """Create it without retention by time, which would delete the events of 2013 at once."""
        async with Admin(bootstrap_servers=self._site.bootstrap_servers) as admin:
            topic = NewTopic(TOPIC, partitions, 1, {"retention.ms": "-1"})
            await admin.create_topics([topic])

    async def ship(self, events: pa.Table) -> Tally:
        """Send all events in order and wait for every acknowledgement, while the plan is carried out."""
        self.tally = Tally(events.num_rows)
        self._site.proxy.tap = self._wiretap
        self._allow(int(self._plan[0].mark * events.num_rows) if self._plan else events.num_rows)
        began = time.monotonic()
        sending = asyncio.create_task(self._send_all(events))
        sabotage = asyncio.create_task(self._carry_out_plan())
        try:
            await asyncio.wait((sending, sabotage), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                sabotage.result()
            await sending
        finally:
            self._site.proxy.release_responses()
            for task in (sending, sabotage):
                task.cancel()
            await asyncio.gather(sending, sabotage, return_exceptions=True)
            self._site.proxy.tap = None
        self.tally.seconds = time.monotonic() - began
        self.tally.recognised += await self._site.duplicates_recognised()
        self._take_stock()
        return self.tally

    async def _send_all(self, events: pa.Table) -> None:
        sent: asyncio.Queue[list[Awaitable[object]] | None] = asyncio.Queue()
        collecting = asyncio.create_task(self._collect(sent))
        producer = Producer(
            bootstrap_servers=self._site.bootstrap_servers,
            client_id="demo",
            acks="all",
            enable_idempotence=self._idempotent,
            max_in_flight_requests_per_connection=IN_FLIGHT,
            linger_ms=_LINGER_MS,
            max_batch_size=_BATCH_BYTES,
        )
        try:
            await producer.start()
            for chunk in events.to_batches(max_chunksize=_CHUNK_ROWS):
                sent.put_nowait(await self._send_chunk(producer, chunk))
                # While the buffer is not full, send() does not yield, and the network runs on this loop too.
                await asyncio.sleep(0)
                while self.tally.sent >= self._allowed:
                    self._may_send.clear()
                    await self._may_send.wait()
            sent.put_nowait(None)
            await collecting
        finally:
            # Do not wait: after a failure the broker may be gone, after success nothing is outstanding.
            collecting.cancel()
            await producer.stop(timeout_ms=0)

    async def _send_chunk(self, producer: Producer, chunk: pa.RecordBatch) -> list[Awaitable[object]]:
        keys, values, timestamps = (chunk.column(name).to_pylist() for name in _SENT_COLUMNS)
        deliveries: list[Awaitable[object]] = []
        for key, value, timestamp_ms in zip(keys, values, timestamps, strict=True):
            delivery = await producer.send(TOPIC, value.encode(), key=key.encode(), timestamp_ms=timestamp_ms)
            deliveries.append(delivery)
        self.tally.sent += len(deliveries)
        return deliveries

    async def _collect(self, sent: "asyncio.Queue[list[Awaitable[object]] | None]") -> None:
        """Wait for each acknowledgement, in the order of sending."""
        while (deliveries := await sent.get()) is not None:
            for delivery in deliveries:
                try:
                    await delivery
                except ClientError as error:
                    self.tally.failed += 1
                    if self.tally.failed == 1:
                        self._on_event(f"a delivery failed: {error}")
                else:
                    self.tally.acked += 1
            self._take_stock()
            self._progress.set()

    async def _carry_out_plan(self) -> None:
        marks = [int(step.mark * self.tally.events) for step in self._plan]
        for step, mark, next_mark in zip(self._plan, marks, [*marks[1:], self.tally.events], strict=True):
            if step.kind is Kind.KILL:
                # The counts of the broker end with it. A later request would give it time to answer
                # everything.
                self.tally.recognised += await self._site.duplicates_recognised()
            while self.tally.acked < mark:
                self._progress.clear()
                await self._progress.wait()
            self._allow(next_mark)
            try:
                text = await self._carry_out(step)
            except TimeoutError as error:
                raise SabotageError(f"no way to bring this about: {step.kind.value}") from error
            self.tally.faults += 1
            self._on_event(f"{step.mark:4.0%}  {text}")

    def _allow(self, mark: int) -> None:
        """Let the producer send up to the next mark and a little more, so that no fault comes too late; but
        keep some events back, so that the last faults find traffic.
        """
        events = self.tally.events
        ahead = mark + max(_LEAD_ROWS, events // _LEAD_SHARE)
        self._allowed = min(ahead, (mark + events) // 2) if mark < events else ahead
        self._may_send.set()

    async def _carry_out(self, step: Step) -> str:
        """Cause one fault, wait until it has happened, and return its description."""
        proxy = self._site.proxy
        if step.kind is Kind.KILL:
            return await self._kill()
        if step.kind is Kind.DROP_ACKS:
            before = proxy.counters.responses_dropped
            await proxy.drop_responses(step.frames, patience_ms=_PATIENCE_MS).wait()
            return f"{step.kind.value}: {proxy.counters.responses_dropped - before}"
        if step.kind is Kind.CUT_BEFORE:
            await proxy.cut_before_request().wait()
        elif step.kind is Kind.CUT_AFTER:
            await proxy.cut_after_request().wait()
        else:
            await proxy.wait_until(lambda: bool(proxy.in_flight()))
            proxy.cut_connections()
            if step.kind is Kind.REFUSE:
                proxy.refuse_connections(_REFUSED_MS)
                await proxy.wait_until(lambda: not proxy.refusing)
        return str(step.kind.value)

    async def _kill(self) -> str:
        proxy, broker = self._site.proxy, self._site.broker
        # Without sequence numbers the client keeps the order by sending one request at a time.
        wanted, answered_at_least = (IN_FLIGHT, _ANSWERED_AT_KILL) if self._idempotent else (1, 1)
        proxy.hold_responses()
        await proxy.wait_until(
            lambda: len(proxy.in_flight()) >= wanted and proxy.answered() >= answered_at_least
        )
        requests, answered = proxy.in_flight(), proxy.answered()
        batches = sum(len(batches_in(request)) for request in requests)
        await broker.kill_9()
        self.tally.kills += 1
        proxy.cut_connections()
        proxy.release_responses()
        await broker.start()
        return (
            f"{Kind.KILL.value}: {len(requests)} requests with {batches} batches were in flight,"
            f" {answered} of them answered and no answer delivered"
        )

    def _take_stock(self) -> None:
        counters = self._site.proxy.counters
        self.tally.acks_dropped = counters.responses_dropped
        self.tally.cut = counters.connections_cut
        self.tally.batches = self._wiretap.batches
        self.tally.sent_again = self._wiretap.sent_again
        self._on_change(self.tally)
