"""The error table: one number, one name, one verdict; and errors that say what happened."""

import pytest

from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, error_code


def test_every_number_from_minus_one_has_a_code() -> None:
    assert [int(code) for code in sorted(ErrorCode)] == list(range(-1, len(ErrorCode) - 1))
    assert len(ErrorCode) >= 132


def test_no_code_is_both_retriable_and_fatal() -> None:
    assert not [code for code in ErrorCode if code.retriable and code.fatal]


def test_every_code_has_one_line_of_its_own() -> None:
    messages = [code.message for code in ErrorCode]
    assert all(message and "\n" not in message for message in messages)
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize(
    ("code", "number", "retriable", "fatal"),
    [
        (ErrorCode.NONE, 0, False, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, -1, False, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 45, False, False),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 46, False, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, 56, True, False),
        (ErrorCode.UNKNOWN_PRODUCER_ID, 59, False, False),
        (ErrorCode.PRODUCER_FENCED, 90, False, True),
    ],
)
def test_a_code_is_its_number_and_carries_its_verdict(
    code: ErrorCode, number: int, retriable: bool, fatal: bool
) -> None:
    assert code == number
    assert ErrorCode(number) is code
    assert (code.retriable, code.fatal) == (retriable, fatal)


def test_a_number_that_the_table_lacks_is_an_unknown_server_error() -> None:
    assert error_code(45) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_code(32000) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error_code(-2) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_api_error_says_the_table_s_line_unless_it_was_given_one() -> None:
    plain = ApiError(ErrorCode.INVALID_PARTITIONS)
    assert plain.message == ErrorCode.INVALID_PARTITIONS.message
    told = ApiError(ErrorCode.INVALID_PARTITIONS, "expected 1 or more partitions, got 0")
    assert str(told) == "INVALID_PARTITIONS (37): expected 1 or more partitions, got 0"
    assert told.code is ErrorCode.INVALID_PARTITIONS


def test_a_protocol_error_is_a_value_error() -> None:
    assert issubclass(ProtocolError, ValueError)
