"""What aiokafka has, our clients have too, or docs/aiokafka.md says what to use instead."""

import inspect
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import errors as their_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import BrokerResponseError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

import tidelog
from tidelog.client.keywords import NOT_TAKEN

PAGE = (Path(__file__).parents[3] / "docs" / "aiokafka.md").read_text()
CLIENTS = [
    (aiokafka.AIOKafkaProducer, tidelog.Producer),
    (aiokafka.AIOKafkaConsumer, tidelog.Consumer),
    (BatchBuilder, tidelog.BatchBuilder),
]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    return found


def is_awaited(function: Any) -> bool:
    returned = inspect.signature(function).return_annotation
    return inspect.iscoroutinefunction(function) or returned == Awaitable[None]


@pytest.mark.parametrize(("theirs", "ours"), CLIENTS[:2])
def test_each_argument_is_taken_or_refused_with_advice(theirs: type, ours: type) -> None:
    taken = parameters(ours)
    for name, parameter in parameters(theirs).items():
        assert (name in taken) != (name in NOT_TAKEN)
        if name in NOT_TAKEN:
            with pytest.raises(TypeError) as refusal:
                ours(**{name: parameter.default})
            assert str(refusal.value) == f"unknown argument {name!r}: {NOT_TAKEN[name]}"
        if name in NOT_TAKEN or parameter.default != taken[name].default:
            assert f"`{name}`" in PAGE


@pytest.mark.parametrize(("theirs", "ours"), CLIENTS)
def test_each_method_is_called_in_the_same_way(theirs: type, ours: type) -> None:
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if name.startswith("_"):
            continue
        our_method = getattr(ours, name, None)
        if our_method is None:
            assert f".{name}()`" in PAGE
            continue
        assert is_awaited(our_method) == is_awaited(method), name
        wanted = {each.name: each.kind for each in parameters(method).values()}
        given = {each.name: each.kind for each in parameters(our_method).values()}
        assert {each: given.get(each) for each in wanted} == wanted, name


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [(aiokafka.ConsumerRecord, tidelog.ConsumerRecord), (RecordMetadata, tidelog.RecordMetadata)],
)
def test_each_field_is_there(theirs: type, ours: type) -> None:
    missing = {name for name in theirs.__annotations__ if not hasattr(ours, name)}
    assert {name for name in missing if f"`{name}`" not in PAGE} == set()


def test_each_error_has_an_equal_on_the_page() -> None:
    alone = {
        name
        for name in their_errors.__all__
        if not issubclass(getattr(their_errors, name), BrokerResponseError)
    }
    assert {name for name in alone if f"`{name}`" not in PAGE} == set()


def test_each_call_of_the_admin_client_has_an_equal_on_the_page() -> None:
    calls = {name for name in vars(AIOKafkaAdminClient) if not name.startswith("_")} - {"start", "close"}
    assert {name for name in calls if f"`{name}" not in PAGE} == set()


@pytest.mark.parametrize(
    ("client", "name", "advice"),
    [
        (tidelog.Producer, "loop", "leave it out"),
        (tidelog.Producer, "batch_size", "did you mean max_batch_size?"),
        (tidelog.Producer, "retries", "help() of the class lists all"),
        (tidelog.Consumer, "auto_ofset_reset", "did you mean auto_offset_reset?"),
        (tidelog.Admin, "api_version", "leave it out"),
    ],
)
def test_a_hint_names_the_right_argument_or_none(client: Any, name: str, advice: str) -> None:
    with pytest.raises(TypeError) as refusal:
        client(**{name: "x"})
    assert advice in str(refusal.value)
