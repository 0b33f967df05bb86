"""The order of requests on one connection: which of them hold back those behind, and what that costs."""

from typing import Any

import pytest

from tests.unit.broker.net.peers import Peer, Running, produce_frame, request_frame, serving
from tests.unit.broker.net.test_connection import Held
from tests.waiting import until
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.handlers.context import CloseConnection, Handler, LateAnswer
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.hot import ProducePartitionResult
from tidelog.protocol.schema import ApiKey

SENT_BEHIND_BYTES = 8 << 20


class Calls:
    """A handler that answers at once and remembers whom it answered."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def handle(self, context: Any, request: Any) -> Any:
        self.ids.append(context.header.correlation_id)
        return {"error_code": 0}


async def others_are_served(server: Running) -> None:
    """Whatever was to be served before this one has been."""
    async with await Peer.connect(server.port) as other:
        await other.ask(ApiKey.DESCRIBE_CLUSTER, 0)


def handlers(first: ApiKey, held: Held, behind: Calls) -> dict[ApiKey, Handler]:
    return {
        ApiKey.API_VERSIONS: behind.handle,
        ApiKey.DESCRIBE_CLUSTER: Calls().handle,
        first: held.handle,
    }


HOLDING_BACK = [
    key
    for key, served in SERVED_APIS.items()
    if served.kind.holds_back
    and AuthenticationStep.NOT_REQUIRED in served.open_at
    and key not in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER)
]


@pytest.mark.parametrize("api_key", HOLDING_BACK)
async def test_what_changes_or_reads_later_holds_back_those_behind_it_until_it_is_answered(
    api_key: ApiKey,
) -> None:
    held, behind = Held(), Calls()
    async with serving(handlers(api_key, held, behind)) as server, await Peer.connect(server.port) as peer:
        first = request_frame(api_key, SERVED_APIS[api_key].last, {}, 1)
        peer.send(first + b"".join(request_frame(ApiKey.API_VERSIONS, 3, {}, number) for number in (2, 3)))
        await held.arrived(1)
        await others_are_served(server)
        assert behind.ids == []
        held.futures[0].cancel()  # Answered, with an error.
        await until(lambda: behind.ids == [2, 3])


async def test_an_append_and_a_long_poll_hold_back_no_other_request() -> None:
    held, behind = Held(), Calls()
    both = {**handlers(ApiKey.FETCH, held, behind), ApiKey.PRODUCE: held.handle}
    async with serving(both) as server, await Peer.connect(server.port) as peer:
        appends = [produce_frame(9, [("t", [(0, b"x")])], correlation_id=number) for number in range(5)]
        fetch = request_frame(ApiKey.FETCH, 7, {"topics": []}, 5)
        peer.send(b"".join((*appends, fetch, request_frame(ApiKey.API_VERSIONS, 3, {}, 6))))
        await until(lambda: behind.ids == [6])
        assert len(held.futures) == 6


async def test_no_more_than_one_arrival_waits_behind_a_change() -> None:
    held, behind = Held(), Calls()
    both = handlers(ApiKey.CREATE_TOPICS, held, behind)
    async with serving(both) as server, await Peer.connect(server.port) as peer:
        peer.send(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": []}, 0))
        await held.arrived(1)
        (connection,) = server._connections
        one = request_frame(ApiKey.API_VERSIONS, 3, {"client_software_name": "n" * 1000}, 7)
        count = SENT_BEHIND_BYTES // len(one)
        peer.send(one * count)
        await until(lambda: connection._paused)
        await others_are_served(server)
        assert len(connection._reader._buffer) < SENT_BEHIND_BYTES // 8
        assert connection._paused
        assert behind.ids == []
        held.futures[0].set_result({"topics": []})
        await until(lambda: len(behind.ids) == count)


async def test_a_client_that_goes_while_a_change_is_under_way_is_noticed_at_once() -> None:
    held = Held()
    async with serving(handlers(ApiKey.CREATE_TOPICS, held, Calls())) as server:
        async with await Peer.connect(server.port) as peer:
            peer.send(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": []}, 1))
            await held.arrived(1)
        await until(lambda: server.metrics.connections == 0)


def with_append(answer: LateAnswer, behind: Calls) -> dict[ApiKey, Handler]:
    return {
        ApiKey.PRODUCE: lambda context, request: answer,
        ApiKey.API_VERSIONS: behind.handle,
        ApiKey.DESCRIBE_CLUSTER: Calls().handle,
    }


async def test_an_append_that_takes_effect_later_holds_back_those_behind_it_until_then() -> None:
    """Not until it is answered: what follows may be in flight with it."""
    behind, late = Calls(), LateAnswer(1, is_effective=False)
    async with serving(with_append(late, behind)) as server, await Peer.connect(server.port) as peer:
        append = produce_frame(9, [("t", [(0, b"x")])], correlation_id=1)
        peer.send(append + request_frame(ApiKey.API_VERSIONS, 3, {}, 2))
        await others_are_served(server)
        assert behind.ids == []
        late.take_effect()
        await until(lambda: behind.ids == [2])
        peer.send(request_frame(ApiKey.API_VERSIONS, 3, {}, 3))
        await until(lambda: behind.ids == [2, 3])
        late.give([("t", [ProducePartitionResult(0, 0, 7, -1, 0)])])
        assert [int.from_bytes((await peer.frame())[:4], "big") for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("answer", [None, CloseConnection()])
async def test_an_append_without_an_answer_may_take_effect_later(answer: Exception | None) -> None:
    behind, late = Calls(), LateAnswer(1, is_effective=False)
    async with serving(with_append(late, behind)) as server, await Peer.connect(server.port) as peer:
        append = produce_frame(9, [("t", [(0, b"x")])], correlation_id=1, acks=0)
        peer.send(append + request_frame(ApiKey.API_VERSIONS, 3, {}, 2))
        await others_are_served(server)
        assert behind.ids == []
        late.give(answer)
        if answer is None:
            assert int.from_bytes((await peer.frame())[:4], "big") == 2
        else:
            assert await peer.closed() == b""
            assert behind.ids == []
