"""What rules mask in records, whatever the records are."""

import json

import pytest

from tidelog.broker.configuration.masking_rules import masking_rules
from tidelog.broker.console.records.masking import MOST_MASKED_BYTES, Masks
from tidelog.broker.console.records.shown_values import not_decoded
from tidelog.broker.console.records.stepwise_reading import Seen
from tidelog.protocol.records import TimestampType
from tidelog.protocol.settings import ConfigError
from tidelog.schemas.decoded_values import DecodedValue

HEADERS = (("user", b"alice"), ("x.trace", b"1"), ("none", None))


def masked(rule: str, value: bytes | None, key: bytes | None = b"k") -> Seen:
    masks = Masks.of(masking_rules([rule]), "orders")
    assert masks is not None
    return masks.masked(Seen(0, 1, TimestampType.CREATE_TIME, key, value, HEADERS, -1), not_decoded)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("value.email", {"email": "a@b", "id": 7}, {"email": "***", "id": 7}),
        (
            "value.customer.email",
            {"customer": {"email": "a", "id": 1}},
            {"customer": {"email": "***", "id": 1}},
        ),
        (
            "value.lines.price",
            {"lines": [{"price": 5}, {"price": None}]},
            {"lines": [{"price": "***"}, {"price": None}]},
        ),
        (
            "value.*.email",
            {"a": {"email": "x"}, "b": {"email": "y"}},
            {"a": {"email": "***"}, "b": {"email": "***"}},
        ),
        ("value.customer", {"customer": {"email": "a"}}, {"customer": "***"}),
        ("value.customer.email", {"customer": '{"email": "a"}'}, {"customer": "***"}),
        ("value.absent", {"id": 12345678901234567890}, {"id": 12345678901234567890}),
    ],
)
def test_a_field_is_masked_wherever_its_path_leads(path: str, value: object, expected: object) -> None:
    found = masked(f"ord*:{path}", json.dumps(value).encode())
    assert json.loads(found.value or b"") == expected
    assert (found.key, found.headers) == (b"k", HEADERS)


@pytest.mark.parametrize(
    "value", [b"email=a", b"\xff\0", b'{"email": "a"', b'"' + b"x" * MOST_MASKED_BYTES + b'"']
)
def test_what_is_no_json_is_masked_whole(value: bytes) -> None:
    assert masked("orders:value.email", value).value == b"***"


def test_keys_whole_values_and_headers_are_masked() -> None:
    assert masked("*:key", b"v").key == b"***"
    assert masked("*:key.id", b"v", b'{"id": "a"}').key == b'{"id": "***"}'
    assert masked("*:value", b"v").value == b"***"
    assert masked("*:value", None).value is None
    assert masked("*:headers.x.trace", b"v").headers == (
        ("user", b"alice"),
        ("x.trace", b"***"),
        ("none", None),
    )
    assert masked("*:headers", b"v").headers == (("user", b"***"), ("x.trace", b"***"), ("none", None))


def test_a_decoded_value_is_masked() -> None:
    masks = Masks.of(masking_rules(["o*:value.email"]), "orders")
    assert masks is not None
    record = Seen(0, 1, TimestampType.CREATE_TIME, None, b"\0\0\0\0\7x", (), -1)
    found = masks.masked(record, lambda _: DecodedValue('{"email": "a", "id": 7}', 7, "AVRO"))
    assert found.value == b'{"email": "***", "id": 7}'


def test_other_topics_are_not_masked() -> None:
    assert Masks.of(masking_rules(["orders:value"]), "orders.b") is None


@pytest.mark.parametrize(
    "rule", ["orders", ":value", "orders:", "orders:body.x", "orders:value..x", "orders:value."]
)
def test_a_rule_that_cannot_be_meant_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"console.masking.rules: expected a pattern"):
        masking_rules([rule])
