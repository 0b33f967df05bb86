"""Listeners: Kafka's lists, their short form, and what a person is told who gets one wrong."""

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listener_settings import SecurityProtocol

TWO = {
    "listeners": "OUTSIDE://0.0.0.0:9092,INSIDE://10.0.0.1:29092",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
}


def test_the_ports_that_the_system_chose_replace_those_of_the_settings_in_either_form() -> None:
    short = BrokerConfig(port=0, internal_port=0).with_ports([1, 2])
    assert [listener.port for listener in short.listener_configs] == [1, 2]
    lists = BrokerConfig.load({**TWO, "listeners": "OUTSIDE://:0,INSIDE://[::1]:0"}).with_ports([1, 2])
    assert [listener.listened for listener in lists.listener_configs] == [
        "OUTSIDE://0.0.0.0:1",
        "INSIDE://[::1]:2",
    ]


def test_each_protocol_says_whether_it_has_tls_and_whether_it_has_sasl() -> None:
    assert [protocol for protocol in SecurityProtocol if protocol.has_tls] == ["SSL", "SASL_SSL"]
    assert [protocol for protocol in SecurityProtocol if protocol.has_sasl] == ["SASL_PLAINTEXT", "SASL_SSL"]


def test_several_listeners_may_leave_their_port_to_the_system() -> None:
    outside, inside = BrokerConfig.load({**TWO, "listeners": "OUTSIDE://:0,INSIDE://:0"}).listener_configs
    assert outside.port == inside.port == 0
