"""What a request names twice is answered once or refused: repeats multiply neither work nor answers."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchRequest, encode_fetch_request
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import finish

TIMES = 3
Repeats = Callable[[Asker], Awaitable[list[tuple[Any, int]]]]
"""Names one thing `TIMES` times and another once; (what, error code) of each part of the answer."""


async def fetch(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    partition = FetchPartition(0, -1, 0, -1, -1, 1)
    topics = [("t", [partition] * 2), ("t", [partition]), ("once", [partition])]
    request = FetchRequest(-1, 0, 1, 1, 0, 0, -1, topics)
    routes = RouteTable(asker.handlers, asker.services.metrics, AuthenticationStep.NOT_REQUIRED)
    route = routes[ApiKey.FETCH, 12]
    assert route is not None
    decoded = finish(route.decode(memoryview(encode_fetch_request(12, request))))
    answer = asker.call(ApiKey.FETCH, 12, decoded)
    return [(name, result.error_code) for name, results in answer.topics for result in results]


async def produce(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    answer = await asker.send(*((name, 0, make_batch(b"v")) for name in ["t"] * TIMES + ["once"]))
    ends = {name: asker.replica(name).log.end_offset for name in ("t", "once")}
    assert ends == {"t": 0, "once": 1}
    return [(name, result.error_code) for name, results in answer for result in results]


async def describe_log_dirs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    topics = [{"topic": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    answer = await asker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics)
    (folder,) = answer.results
    return [(topic.name, folder.error_code) for topic in folder.topics for _ in topic.partitions]


async def alter_replica_log_dirs(asker: Asker) -> list[tuple[Any, int]]:
    await asker.create("once")
    path = str(asker.services.config.data_dir.absolute())
    topics = [{"name": name, "partitions": [0] * TIMES} for name in ["t"] * TIMES + ["once"]]
    dirs = [{"path": "/elsewhere", "topics": topics[:1]}, {"path": path, "topics": topics}]
    answer = await asker.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    return [(topic.topic_name, part.error_code) for topic in answer.results for part in topic.partitions]


ANSWERED_ONCE: dict[ApiKey, Repeats] = {
    ApiKey.FETCH: fetch,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
}
_SCRIPT = Path(__file__).parent / "scripts" / "repeats.txt"
IN_THE_SCRIPT = {api.key for api in APIS.values() if f"\n{api.name} " in _SCRIPT.read_text()}


# A marker that is written again changes nothing: `test_transaction_markers`.
ANSWERED_EACH = {
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.LEAVE_GROUP,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}
ANSWERED_AS_A_WHOLE = {
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
}
# The acknowledgements of a partition that is named twice are joined: `test_share_fetch`.
OF_SESSIONS = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
# With an authorizer only: `test_acls`.
ABOUT_ACLS = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
# What they name is not made by anybody, so `test_cluster_admin` asks them twice.
ABOUT_THE_CLUSTER = {ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES}


def test_each_api_that_can_name_a_thing_twice_is_of_a_known_kind() -> None:
    naming = {key for key in SERVED_APIS if any(field.is_array for field in APIS[key].request.fields)}
    answered = ANSWERED_ONCE.keys() | ANSWERED_EACH | ANSWERED_AS_A_WHOLE | IN_THE_SCRIPT
    assert naming == answered | {ApiKey.PRODUCE} | ABOUT_THE_CLUSTER | ABOUT_ACLS | OF_SESSIONS


@pytest.mark.parametrize("api_key", ANSWERED_ONCE)
async def test_what_reads_or_may_be_done_twice_answers_a_repeat_once(asker: Asker, api_key: ApiKey) -> None:
    await asker.create("t")
    assert await ANSWERED_ONCE[api_key](asker) == [("t", ErrorCode.NONE), ("once", ErrorCode.NONE)]


async def test_partitions_of_one_produce_that_are_named_twice_are_refused_and_the_rest_is_stored(
    asker: Asker,
) -> None:
    await asker.create("t")
    refused = [("t", ErrorCode.INVALID_REQUEST)] * TIMES
    assert await produce(asker) == [*refused, ("once", ErrorCode.NONE)]
