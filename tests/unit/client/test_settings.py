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


@pytest.mark.parametrize("acks", [0, 1, "1", "0"])
def test_idempotence_needs_all_acknowledgements(acks: int | str) -> None:
    with pytest.raises(ConfigError, match="enable_idempotence=False"):
        ProducerConfig(acks=acks)
    assert ProducerConfig(acks=acks, enable_idempotence=False).acks_number == int(acks)


def test_idempotence_allows_five_in_flight() -> None:
    with pytest.raises(ConfigError, match="5 or less"):
        ProducerConfig(max_in_flight_requests_per_connection=6)
    ProducerConfig(max_in_flight_requests_per_connection=6, enable_idempotence=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 2},
        {"compression_type": "lzma"},
        {"linger_ms": -1},
        {"max_batch_size": 0},
        {"delivery_timeout_ms": 0},
        {"max_in_flight_requests_per_connection": 0},
        {"buffer_memory": 100},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ProducerConfig(**settings)  # type: ignore[arg-type]


def test_the_defaults_are_safe() -> None:
    config = ProducerConfig()
    assert config.acks_number == -1
    assert config.enable_idempotence
    assert config.compression is Compression.NONE


@pytest.mark.parametrize("policy", ["newest", "", "EARLIEST"])
def test_unknown_reset_policies_are_refused(policy: str) -> None:
    with pytest.raises(ConfigError, match="earliest"):
        ConsumerConfig(auto_offset_reset=policy)


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


@pytest.mark.parametrize("servers", ["", "a:", ":1", "a:b", "a:0", "a:70000", []])
def test_what_is_no_address_is_refused(servers: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ClusterConfig(bootstrap_servers=servers)


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


def test_settings_of_transactions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected a name or None, got an empty text"):
        ProducerConfig(transactional_id="")
    with pytest.raises(ConfigError, match="enable_idempotence"):
        ProducerConfig(transactional_id="app", enable_idempotence=False)
    with pytest.raises(ConfigError, match="needs a transactional_id"):
        ProducerConfig(transaction_two_phase_commit_enable=True)
