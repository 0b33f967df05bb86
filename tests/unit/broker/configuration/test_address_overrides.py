"""Overrides of connections per address are read as Kafka writes them."""

import pytest

from tidelog.broker.configuration.address_overrides import checked_overrides, connections_by_address
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.settings import ConfigError


def test_each_address_has_its_number_also_one_of_ipv6() -> None:
    text = "::ffff:10.0.0.1:200, ::1:5,[FE80:0::1]:7"
    entries = BrokerConfig.load({"max.connections.per.ip.overrides": text}).max_connections_per_ip_overrides
    assert connections_by_address(entries) == {"10.0.0.1": 200, "::1": 5, "fe80::1": 7}
    assert checked_overrides("") == checked_overrides(()) == ()


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:many", "10.0.0.1:-1", "localhost:5"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1:200"):
        checked_overrides(text)
