"""FindCoordinator names this broker, by the address that the client's listener advertises."""

from typing import Any

from tests.unit.broker.handlers.conftest import LISTENER, Asker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_request, decode_response, encode_request, encode_response


async def ask_one(asker: Asker, version: int, name: str, key_type: int) -> Any:
    """As versions before 4 ask: for one key."""
    wanted = {"key": name, "key_type": key_type}
    request = decode_request(
        ApiKey.FIND_COORDINATOR, version, encode_request(ApiKey.FIND_COORDINATOR, version, wanted)
    )
    answer = await asker.call(ApiKey.FIND_COORDINATOR, version, request)
    return decode_response(
        ApiKey.FIND_COORDINATOR, version, encode_response(ApiKey.FIND_COORDINATOR, version, answer)
    )


async def test_this_broker_coordinates_every_group_and_transaction(asker: Asker) -> None:
    for version in range(4):
        for key_type in (0, 1) if version else (0,):
            answer = await ask_one(asker, version, "orders", key_type)
            assert answer.error_code == ErrorCode.NONE
            assert (answer.node_id, answer.host, answer.port) == (1, LISTENER.host, LISTENER.port)
            assert answer.error_message == ("NONE" if version else "")  # As Kafka says it.


async def test_several_keys_are_answered_each(asker: Asker) -> None:
    for version in (4, 5, 6):
        answer = await asker.ask(ApiKey.FIND_COORDINATOR, version, coordinator_keys=["a", "b"])
        assert [(found.key, found.host, found.error_code) for found in answer.coordinators] == [
            ("a", LISTENER.host, ErrorCode.NONE),
            ("b", LISTENER.host, ErrorCode.NONE),
        ]


async def test_an_unknown_kind_of_key_is_refused(asker: Asker) -> None:
    one = await ask_one(asker, 3, "orders", 7)
    assert (one.error_code, one.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    many = await asker.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a"], key_type=7)
    assert many.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert "key type" in many.coordinators[0].error_message


async def test_no_keys_get_no_coordinators(asker: Asker) -> None:
    answer = await asker.ask(ApiKey.FIND_COORDINATOR, 5)
    assert answer.coordinators == []
