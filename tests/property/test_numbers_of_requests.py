"""Every number of every request at its ends: the broker answers by its rules, and what it stored does not
break it later."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from structlog.testing import capture_logs

from tests.conformance.raw import RawClient, batch, connected
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.messages.declaration import Field, version_in
from tidelog.protocol.schema import APIS, ApiKey, decode_response, encode_request

Place = tuple[str, ...]
Values = Mapping[str, Any]
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ZEROS = {"bool": False, "string": "t", "bytes": b"", "float64": 1.0, "uuid": UUID(int=0)}
# Where zero, "t" and the default would make a request refused before its number is looked at.
VALID: Values = {
    "acks": -1,
    "assignments": [],
    "configs.name": "retention.ms",
    "configs.value": "1000",
    "deletions": [],
    "entity_type": "user",
    "forgotten_topics_data": [],
    "host": "*",
    "iterations": 4096,
    "key": "producer_byte_rate",
    "mechanism": 1,
    "member_epoch": 0,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:alice",
    "rebalance_timeout_ms": 10_000,
    "records": batch("value", -1, -1),
    "replica_id": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "salt": b"salt" * 4,
    "salted_password": b"p" * 32,
    "session_timeout_ms": 10_000,
    "subscribed_topic_regex": None,
    "topic_names": ["absent"],
    "topic_partitions": [],
    "transaction_timeout_ms": 60_000,
    "user": "alice",
}
MEMBERS = (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP)
IN_TRANSACTIONS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)


def numbers(fields: tuple[Field, ...], version: int, place: Place = ()) -> Iterator[tuple[Place, int]]:
    """Where the numbers of a request are, and how many bits they have."""
    for field in fields:
        if version_in(version, field.versions):
            if field.element_type in BITS:
                yield (*place, field.name), BITS[field.element_type]
            yield from numbers(field.fields, version, (*place, field.name))


def ends(bits: int) -> list[int]:
    return [-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1]


def drawn(fields: tuple[Field, ...], version: int) -> Iterator[dict[Place, int]]:
    """None, each number alone at each of its ends, all at the same."""
    found = dict(numbers(fields, version))
    yield {}
    for place, bits in found.items():
        yield from ({place: end} for end in ends(bits))
    yield from ({place: ends(bits)[nth] for place, bits in found.items()} for nth in range(4))


def values_of(
    fields: tuple[Field, ...], version: int, valid: Values, at: Mapping[Place, int], place: Place = ()
) -> dict[str, Any]:
    """What `at` and `valid` say, else the default; each array that neither names has one element."""
    values: dict[str, Any] = {}
    for field in fields:
        if not version_in(version, field.versions):
            continue
        here = (*place, field.name)
        name = next((name for name in (".".join(here[-2:]), field.name) if name in valid), None)
        if here in at:
            value: Any = at[here]
        elif name is not None and not any(each[: len(here)] == here for each in at):
            value = valid[name]
        elif field.element_type == "struct":
            value = values_of(field.fields, version, valid, at, here)
        elif isinstance(field.default, int | None) and not field.is_array:
            value = field.default
        else:
            value = ZEROS.get(field.element_type, 0)
        values[field.name] = [value] if field.is_array and not isinstance(value, list) else value
    return values


def body_of(key: ApiKey, version: int, valid: Values, at: Mapping[Place, int] | None = None) -> bytes:
    return encode_request(key, version, values_of(APIS[key].request.fields, version, valid, at or {}))


async def asked(client: RawClient, key: ApiKey, version: int, body: bytes) -> Any:
    await client.send(key, version, body)
    return decode_response(key, version, (await client.receive_body())[2])


async def asker_of(client: RawClient, key: ApiKey, number: int) -> dict[str, Any]:
    """Who sends request `number`: a producer in a transaction, a member of a group, or nobody yet."""
    own: dict[str, Any] = {"group_id": f"g{number}", "member_id": "", "name": f"made-{number}"}
    if key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        return {**own, "member_id": str(uuid4())}
    if key == ApiKey.CREATE_TOPICS:
        return {**own, "num_partitions": 1, "replication_factor": 1}
    if key == ApiKey.DELETE_TOPICS:
        return {"name": "absent", "topic_id": UUID(int=0)}
    del own["name"]
    if key in MEMBERS:
        joined = await asked(client, ApiKey.JOIN_GROUP, 0, body_of(ApiKey.JOIN_GROUP, 0, {**VALID, **own}))
        own |= {"member_id": joined.member_id, "generation_id": joined.generation_id}
    if key in IN_TRANSACTIONS:
        body = body_of(ApiKey.INIT_PRODUCER_ID, 0, VALID)
        made = await asked(client, ApiKey.INIT_PRODUCER_ID, 0, body)
        for prefix in ("", "v3_and_below_"):
            own |= {f"{prefix}producer_id": made.producer_id, f"{prefix}producer_epoch": made.producer_epoch}
        await asked(client, ApiKey.ADD_OFFSETS_TO_TXN, 0, body_of(ApiKey.ADD_OFFSETS_TO_TXN, 0, own))
    return own


def codes(answer: Any) -> Iterator[int]:
    for name, value in answer.items() if isinstance(answer, Mapping) else enumerate(answer):
        if str(name).endswith("error_code"):
            yield value
        elif isinstance(value, dict | list):
            yield from codes(value)


async def codes_of_all(client: RawClient) -> dict[str, set[int]]:
    """API and number -> the codes that answered it."""
    await client.create()
    described = await client.ask(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]})
    topic = {"topic_id": described.topics[0].topic_id}
    await client.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "t", "key_type": 1})
    found: dict[str, set[int]] = {}
    request = 0
    for key, api in SERVED_APIS.items():
        if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            continue
        for version in (api.first, api.last):
            for at in drawn(APIS[key].request.fields, version):
                request += 1
                own = topic | await asker_of(client, key, request)
                body = body_of(key, version, VALID | own, at)
                if key == ApiKey.PRODUCE and at.get(("acks",)) == 0:
                    continue
                answer = await asked(client, key, version, body)
                found[f"{key.name} {version} {at}"] = set(codes(answer))
    return found


async def test_no_number_of_a_request_breaks_the_broker(tmp_path: Path) -> None:
    config = BrokerConfig(
        port=0,
        http_port=-1,
        data_dir=tmp_path,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:ANONYMOUS",
        group_initial_rebalance_delay_ms=0,
    )
    with capture_logs() as events:
        async with await Broker.start(config) as broker:
            async with connected(broker.port) as client:
                found = await codes_of_all(client)
            await broker.services.groups.sweep()
        # What was stored is read again.
        async with await Broker.start(config) as broker:
            broker.services.metrics.render()
    assert not [what for what, came in found.items() if ErrorCode.UNKNOWN_SERVER_ERROR in came]
    assert not [event for event in events if event["log_level"] == "error"]
