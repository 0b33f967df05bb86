"""One tree of exceptions, each of which says what to do."""

import pytest

from tidelog import client
from tidelog.client import BrokerError, ClientError, DeliveryError, errors
from tidelog.protocol.errors import ErrorCode
from tidelog.wire import errors as wire_errors
from tidelog.wire.errors import broker_error

# What these leave open is said by each class below them.
_ABSTRACT = {ClientError, DeliveryError}


def tree(kind: type[ClientError] = ClientError) -> list[type[ClientError]]:
    return [kind, *(below for each in kind.__subclasses__() for below in tree(each))]


def test_each_says_whether_to_retry_and_what_to_do() -> None:
    for kind in tree():
        assert isinstance(kind.retriable, bool), kind
        assert (kind.__doc__ or "").strip(), kind
        assert kind in _ABSTRACT or kind.hint, kind
        assert kind.__module__ in (errors.__name__, wire_errors.__name__)
        assert getattr(client, kind.__name__) is kind


def test_nothing_else_is_raised_on_purpose() -> None:
    names = {**vars(errors), **vars(wire_errors)}
    exceptions = [each for each in names.values() if isinstance(each, type) and issubclass(each, Exception)]
    assert {each for each in exceptions if not issubclass(each, ClientError)} <= {ErrorCode}


def test_a_refusal_keeps_its_code_and_tells_what_it_knows() -> None:
    for code in set(ErrorCode) - {ErrorCode.NONE}:
        error = broker_error(code, "the attempt")
        assert isinstance(error, BrokerError), code
        assert (error.code, error.retriable) == (code, code.retriable)
        assert code.name in str(error)
        assert str(error).endswith(error.hint), code


@pytest.mark.parametrize("kind", [client.UnknownTopicError, client.DeliveryTimeoutError])
def test_the_text_says_what_happened_and_then_what_to_do(kind: type[ClientError]) -> None:
    arguments = (
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
        if kind is client.UnknownTopicError
        else ("gone", "t", 0)
    )
    text = str(kind(*arguments))  # type: ignore[arg-type]
    assert "gone" in text
    assert text.endswith(kind.hint)
