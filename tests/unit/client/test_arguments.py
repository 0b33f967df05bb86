"""Arguments of an application: what is wrong with one is said by its name, with what came."""

from typing import Any

import pytest

from tidelog.client import Consumer, Producer
from tidelog.client.arguments import list_of_names, timeout_seconds, whole_number


@pytest.mark.parametrize("number", ["0", 0.0, None])
def test_what_is_no_whole_number_is_refused(number: Any) -> None:
    with pytest.raises(TypeError, match=f"offset: expected a whole number, got {number!r}"):
        whole_number(number, "offset")


def test_a_number_below_its_bound_is_refused_if_it_has_one() -> None:
    with pytest.raises(ValueError, match="max_records: expected 1 or more, got 0"):
        whole_number(0, "max_records", low=1)
    assert whole_number(-1, "partition", low=None) == -1


@pytest.mark.parametrize("timeout_ms", ["5", None])
def test_a_timeout_is_a_number_of_milliseconds(timeout_ms: Any) -> None:
    assert timeout_seconds(0.5) == 0.0005
    with pytest.raises(TypeError, match=f"timeout_ms: expected a number of milliseconds, got {timeout_ms!r}"):
        timeout_seconds(timeout_ms)


@pytest.mark.parametrize("what", ["key_serializer", "value_serializer", "partitioner", "session", "cluster"])
def test_what_a_producer_cannot_use_is_refused_when_it_is_made(what: str) -> None:
    with pytest.raises(TypeError, match=f"{what}: expected .*, got 'utf-8'"):
        Producer(**{what: "utf-8"})  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["key_deserializer", "value_deserializer"])
def test_what_a_consumer_cannot_call_is_refused_when_it_is_made(what: str) -> None:
    with pytest.raises(TypeError, match=f"{what}: expected a function, got 'utf-8'"):
        Consumer("orders", **{what: "utf-8"})  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["orders", None, 5])
def test_the_letters_of_a_text_are_no_names(names: Any) -> None:
    assert list_of_names({"orders"}, "topics") == ["orders"]
    with pytest.raises(TypeError, match=f"topics: expected a list of names, got .*{names!r}"):
        list_of_names(names, "topics")
