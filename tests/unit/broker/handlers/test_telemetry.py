"""GetTelemetrySubscriptions and PushTelemetry, as clients of Kafka use them."""

from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import LISTENER, Asker
from tests.unit.broker.telemetry.payloads import payload
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import finish

NO_ID = UUID(int=0)
PUSHED = payload(("org.apache.kafka.producer.record.error.rate", 2.5))


async def subscribe(asker: Asker, **settings: str) -> None:
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
    resource = {"resource_type": 16, "resource_name": "all", "configs": configs}
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])
    assert answer.responses[0].error_code == ErrorCode.NONE


async def get(asker: Asker, instance_id: UUID = NO_ID) -> Any:
    return await asker.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance_id)


async def push(asker: Asker, given: Any, metrics: bytes = PUSHED, **more: Any) -> ErrorCode:
    values = {
        "client_instance_id": given.client_instance_id,
        "subscription_id": given.subscription_id,
        "metrics": metrics,
        **more,
    }
    try:
        return ErrorCode((await asker.ask(ApiKey.PUSH_TELEMETRY, 0, **values)).error_code)
    except ApiError as error:
        return error.code


def shown(asker: Asker) -> str:
    assert asker.services.telemetry is not None
    return finish(asker.services.telemetry.exposition()).decode()


async def test_a_client_gets_an_id_and_what_it_is_to_push(asker: Asker) -> None:
    assert asker.services.telemetry is None
    nothing = await get(asker)
    assert (nothing.requested_metrics, nothing.push_interval_ms) == ([], 300_000)
    await subscribe(asker, metrics="*", interval_ms="1000", match="client_id=te.*")
    given = await get(asker, nothing.client_instance_id)
    assert (given.error_code, given.requested_metrics, given.push_interval_ms) == (0, ["*"], 1_000)
    assert given.client_instance_id == nothing.client_instance_id != NO_ID
    assert given.subscription_id != nothing.subscription_id
    assert given.accepted_compression_types == [4, 3, 1, 2]
    assert (given.telemetry_max_bytes, given.delta_temporality) == (1 << 20, False)


@pytest.mark.parametrize("codec", Compression)
async def test_what_it_pushes_is_shown_until_its_last_push(asker: Asker, codec: Compression) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    assert await push(asker, given, compress(codec, PUSHED), compression_type=codec) == ErrorCode.NONE
    line = 'kafka_client_producer_record_error_rate{client_id="test",client_software=""} 2.5'
    assert line in shown(asker)
    assert await push(asker, given, terminating=True) == ErrorCode.NONE
    assert "kafka_client_producer" not in shown(asker)
    assert await push(asker, given) == ErrorCode.INVALID_REQUEST


async def test_a_client_that_is_too_early_is_refused(asker: Asker, clock: Clock) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    assert await push(asker, given) == ErrorCode.NONE
    assert await push(asker, given) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with pytest.raises(ApiError, match="THROTTLING_QUOTA_EXCEEDED"):
        await get(asker, given.client_instance_id)
    clock.now_ms += 1_000
    assert await push(asker, given) == ErrorCode.NONE


async def test_a_changed_subscription_is_told_and_taken_at_once(asker: Asker) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    await subscribe(asker, metrics="a.", interval_ms="1000")
    assert await push(asker, given) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await get(asker, given.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, ["a."])
    assert await push(asker, again) == ErrorCode.NONE


async def test_a_client_that_another_broker_knows_may_push_here(asker: Asker) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    asker.services.telemetry = None
    assert await push(asker, given) == ErrorCode.NONE


async def test_what_cannot_be_taken_is_refused_with_kafka_s_code(asker: Asker, clock: Clock) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    most = given.telemetry_max_bytes
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"client_instance_id": NO_ID}, ErrorCode.INVALID_REQUEST),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(most + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": compress(Compression.ZSTD, bytes(most + 1)), "compression_type": 4},
         ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff\xff"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no zstd", "compression_type": 4}, ErrorCode.INVALID_RECORD),
    ]  # fmt: skip
    for more, code in cases:
        clock.now_ms += 1_000
        metrics = more.pop("metrics", PUSHED)
        assert await push(asker, given, metrics, **more) == code
    clock.now_ms += 1_000
    assert await push(asker, given) == ErrorCode.NONE


async def test_a_client_shows_nothing_more_once_it_is_disconnected(asker: Asker, clock: Clock) -> None:
    await subscribe(asker, metrics="*", interval_ms="1000")
    given = await get(asker)
    assert await push(asker, given) == ErrorCode.NONE
    first = asker.connection
    asker.connection = ConnectionState(2, LISTENER, SecurityProtocol.PLAINTEXT, "127.0.0.1")
    clock.now_ms += 1_000
    assert await push(asker, given) == ErrorCode.NONE
    for connection, is_shown in ((first, True), (asker.connection, False)):
        connection.close()
        assert ("kafka_client_producer" in shown(asker)) == is_shown
