"""Quotas are set, removed and found by Kafka's rules; a bad one is refused and changes nothing."""

import math
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaEntity,
)
from tidelog.protocol.schema import ApiKey

ALICE: QuotaEntity = ((USER, "alice"),)
ALICE_AND_APP: QuotaEntity = ((CLIENT_ID, "app"), (USER, "alice"))
ANYBODY: QuotaEntity = ((USER, None),)
EXACT, DEFAULT, ANY = range(3)


async def altered(
    asker: Asker, entity: QuotaEntity, *, validate_only: bool = False, **quotas: float | None
) -> int:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    answer = await asker.ask(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": named, "ops": ops}], validate_only=validate_only
    )
    (entry,) = answer.entries
    assert tuple((one.entity_type, one.entity_name) for one in entry.entity) == entity
    return int(entry.error_code)


async def found(asker: Asker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = await asker.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=wanted, strict=strict)
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.quotas
        }
        for entry in answer.entries
    }


async def test_a_quota_is_what_was_set_last_until_it_is_removed(asker: Asker) -> None:
    assert await altered(asker, ALICE, producer_byte_rate=1e6, consumer_byte_rate=2e6) == 0
    assert await altered(asker, ALICE, producer_byte_rate=5.5) == 0
    assert await found(asker) == {ALICE: {PRODUCER_BYTE_RATE: 5.5, CONSUMER_BYTE_RATE: 2e6}}
    assert asker.services.quotas.of_clients.buckets("alice", "").produced_bytes is not None
    assert await altered(asker, ALICE, producer_byte_rate=None, consumer_byte_rate=None) == 0
    assert await found(asker) == {}
    assert asker.services.quotas.of_clients.is_empty


async def test_what_is_only_validated_changes_nothing(asker: Asker) -> None:
    assert await altered(asker, ALICE, validate_only=True, producer_byte_rate=1.0) == 0
    assert await found(asker) == {}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        (((USER, ""),), {"producer_byte_rate": 1.0}),
        ((("group", "g"),), {"producer_byte_rate": 1.0}),
        (((IP, "10.0.0.1"), (USER, "alice")), {"producer_byte_rate": 1.0}),
        (((USER, "a"), (USER, "b")), {"producer_byte_rate": 1.0}),
        ((), {"producer_byte_rate": 1.0}),
        (ALICE, {"producer_byte_rate": 0.0}),
        (ALICE, {"producer_byte_rate": -1.0}),
        (ALICE, {"producer_byte_rate": math.inf}),
        (ALICE, {"producer_byte_rate": math.nan}),
        (ALICE, {"connection_creation_rate": 1.0}),
        (((IP, "10.0.0.1"),), {"producer_byte_rate": 1.0}),
        (((IP, "10.0.0.300"),), {"connection_creation_rate": 1.0}),
        (ALICE, {f"q{number}": 1.0 for number in range(20)}),
    ],
    ids=str,
)
async def test_a_quota_that_kafka_does_not_know_is_refused(
    asker: Asker, entity: QuotaEntity, quotas: dict[str, float | None]
) -> None:
    assert await altered(asker, entity, **quotas) == ErrorCode.INVALID_REQUEST
    assert await found(asker) == {}


async def test_a_filter_finds_entities_by_type_and_name_and_strictly_only_those_of_its_types(
    asker: Asker,
) -> None:
    for entity in (ALICE, ALICE_AND_APP, ANYBODY):
        assert await altered(asker, entity, producer_byte_rate=1.0) == 0
    assert await altered(asker, ((IP, None),), connection_creation_rate=9.0) == 0
    assert set(await found(asker, (USER, EXACT, "alice"))) == {ALICE, ALICE_AND_APP}
    assert set(await found(asker, (USER, EXACT, "alice"), strict=True)) == {ALICE}
    assert set(await found(asker, (USER, DEFAULT, None))) == {ANYBODY}
    assert set(await found(asker, (USER, ANY, None), strict=True)) == {ALICE, ANYBODY}
    assert set(await found(asker, (USER, ANY, None), (CLIENT_ID, ANY, None))) == {ALICE_AND_APP}
    assert await found(asker, (IP, ANY, None)) == {((IP, None),): {CONNECTION_CREATION_RATE: 9.0}}
    assert await altered(asker, ((IP, "2001:DB8:0:0:0:0:0:1"),), connection_creation_rate=1.0) == 0
    (of_address,) = await found(asker, (IP, EXACT, "2001:DB8::1"))
    assert of_address == ((IP, "2001:db8::1"),)


@pytest.mark.parametrize(
    "components",
    [
        [("group", EXACT, "g")],
        [(USER, EXACT, None)],
        [(USER, ANY, "alice")],
        [(USER, 7, None)],
        [(USER, ANY, None), (USER, ANY, None)],
        [(USER, ANY, None)] * 50,
    ],
    ids=lambda components: str(components[0]),
)
async def test_a_filter_that_kafka_does_not_know_is_refused(asker: Asker, components: Any) -> None:
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_REQUEST):
        await found(asker, *components)
