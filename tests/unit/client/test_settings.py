"""Settings that contradict each other are refused with the way out."""

import random
from typing import Any

import pytest

from tidelog.client import ClusterConfig
from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.producer.config import ProducerConfig
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.protocol.compression import Compression
from tidelog.protocol.settings import ConfigError, settings_of
from tidelog.wire.backoff import Backoff


@pytest.mark.parametrize(
    ("table", "settings", "said"),
    [
        *((ProducerConfig, {"acks": acks}, "enable_idempotence=False") for acks in (0, 1, "1", "0")),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 6}, "5 or less"),
        (ProducerConfig, {"acks": 2}, "acks"),
        (ProducerConfig, {"compression_type": "lzma"}, "compression_type"),
        (ProducerConfig, {"linger_ms": -1}, "linger_ms"),
        (ProducerConfig, {"max_batch_size": 0}, "max_batch_size"),
        (ProducerConfig, {"delivery_timeout_ms": 0}, "delivery_timeout_ms"),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 0}, "max_in_flight"),
        (ProducerConfig, {"buffer_memory": 100}, "buffer_memory"),
        (ProducerConfig, {"transactional_id": ""}, "expected a name or None, got an empty text"),
        (ProducerConfig, {"transactional_id": "app", "enable_idempotence": False}, "enable_idempotence"),
        (ProducerConfig, {"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
        *(
            (ConsumerConfig, {"auto_offset_reset": policy}, "earliest")
            for policy in ("newest", "", "EARLIEST")
        ),
        *(
            (ClusterConfig, {"bootstrap_servers": servers}, "bootstrap_servers")
            for servers in ("", "a:", ":1", "a:b", "a:0", "a:70000", [])
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(table: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        table(**settings)


def test_the_defaults_are_safe_and_without_idempotence_more_is_allowed() -> None:
    config = ProducerConfig()
    assert (config.acks_number, config.enable_idempotence, config.compression) == (-1, True, Compression.NONE)
    ProducerConfig(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    for acks in (0, 1, "1", "0"):
        assert ProducerConfig(acks=acks, enable_idempotence=False).acks_number == int(acks)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_servers_are_read_in_every_usual_form(
    servers: str | list[str], expected: list[tuple[str, int]]
) -> None:
    assert ClusterConfig(servers).addresses == expected


def test_backoff_doubles_up_to_its_maximum_with_a_fifth_of_jitter() -> None:
    backoff = Backoff(100, 1_000, random.Random(1))
    for failures, middle in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (500, 1_000)]:
        delays = {backoff.delay_ms(failures) for _ in range(200)}
        assert middle * 0.8 <= min(delays) < middle < max(delays) <= middle * 1.2


@pytest.mark.parametrize("table", [ClusterConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig])
def test_every_setting_of_a_client_says_what_it_means_and_may_hold_its_default(table: Any) -> None:
    for each in settings_of(table):
        assert each.description.endswith(".")
        assert each.check(each.default) == each.default
