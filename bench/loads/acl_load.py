"""The processor time of a Produce with and without ACLs, in one process.

Three brokers without sockets: one without an authorizer, one whose authorizer has one ACL, one with 10,000.
The same frame is handed to the dispatcher of each in short turns (A B C C B A), so that a drift meets all
alike. Sockets are left out, so a share of the time is larger here than in a broker. acks=1 leaves the disk
out.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from tidelog.broker.cluster.catalog import Listener
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listeners import SecurityProtocol
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.handlers import build_handlers
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState, Principal
from tidelog.broker.net.dispatch import Dispatcher
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.services import Services, open_services
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

OPEN, ONE_ACL, MANY_ACLS = "open", "one ACL", "10,000 ACLs"
REQUESTS_A_TURN = 100
_VERSION = 9
_TOPIC = "app-000007-events"
_ALICE = "User:alice"


class _Client:
    """A connection without a socket."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.state = ConnectionState(1, Listener("L", "h", 1), SecurityProtocol.PLAINTEXT, "10.0.0.1")
        self.state.principal = Principal("User", "alice")
        self.routes = dispatcher.routes_at(AuthenticationStep.NOT_REQUIRED)


def _acl(name: str, pattern: PatternType, principal: str) -> Acl:
    return Acl(ResourceType.TOPIC, pattern, name, principal, "*", Operation.WRITE, Permission.ALLOW)


def _many() -> Iterator[Acl]:
    """Half of them prefixes of 20 lengths, half literal names, of a thousand users."""
    for number in range(9_999):
        user = f"User:u{number % 1_000}"
        if number % 2:
            yield _acl(f"other-{number:05d}" + "x" * (number % 20), PatternType.PREFIXED, user)
        else:
            yield _acl(f"topic-{number:05d}", PatternType.LITERAL, user)
    yield _acl("app-", PatternType.PREFIXED, _ALICE)


async def _opened(folder: Path, acls: list[Acl] | None) -> tuple[Services, Dispatcher]:
    settings: dict[str, Any] = {} if acls is None else {"authorizer_class_name": STANDARD_AUTHORIZER}
    services = await open_services(BrokerConfig(data_dir=folder, **settings), Metrics(), lambda: 1)
    await services.topics.create(_TOPIC)
    await services.acls.create(acls or [])
    dispatcher = Dispatcher(build_handlers(services), services.metrics, services.events, services.turns)
    return services, dispatcher


def _frame() -> memoryview:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(100), ())
    topics = [(_TOPIC, [(0, bytes(builder.build()))])]
    body = encode_produce_request(_VERSION, ProduceRequest(None, 1, 5_000, topics))
    parts = body if isinstance(body, list) else [body]
    frame = b"".join(encode_request_frame(ApiKey.PRODUCE, _VERSION, 1, "bench", b"".join(parts)))
    return memoryview(frame)[4:]


async def run(folder: str, turns: int = 240) -> dict[str, list[float]]:
    """For each broker the µs per request, the mean of each two turns."""
    # The events of the brokers are not for the output, which is one line.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    frame = _frame()
    kinds = {OPEN: None, ONE_ACL: [_acl("app-", PatternType.PREFIXED, _ALICE)], MANY_ACLS: list(_many())}
    opened = {kind: await _opened(Path(folder) / str(at), kinds[kind]) for at, kind in enumerate(kinds)}
    clients = {kind: _Client(dispatcher) for kind, (_, dispatcher) in opened.items()}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    gc.disable()
    order = [*kinds, *reversed(kinds)]
    for turn in range(turns + 1):
        spent = dict.fromkeys(kinds, 0.0)
        for kind in order:
            dispatch, client = opened[kind][1].dispatch, clients[kind]
            begin = time.thread_time()
            for _ in range(REQUESTS_A_TURN):
                dispatch(client, frame, 0.0)  # type: ignore[arg-type]
            spent[kind] += time.thread_time() - begin
            await asyncio.sleep(0)
        for kind in kinds if turn else ():  # The first turn is a warm-up.
            times[kind].append(spent[kind] / (2 * REQUESTS_A_TURN) * 1e6)
    for services, _ in opened.values():
        await services.close(clean=False)
    return times
