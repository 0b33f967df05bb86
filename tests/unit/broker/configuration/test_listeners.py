"""Listeners: Kafka's lists, their short form, and what a person is told who gets one wrong."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.configuration.listeners import ListenerConfig

TWO = {
    "listeners": "OUTSIDE://0.0.0.0:9092,INSIDE://10.0.0.1:29092",
    "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
}
THREE = {
    "listeners": "A://:1,B://:2,C://:3",
    "listener.security.protocol.map": "A:PLAINTEXT,B:SSL,C:SSL",
}


def loaded(**given: str) -> tuple[ListenerConfig, ...]:
    return BrokerConfig.load(
        {name.replace("_", "."): value for name, value in given.items()}
    ).listener_configs


def complaint_about(given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(given)
    return str(caught.value)


def test_host_and_port_are_the_short_form_of_one_listener() -> None:
    plaintext = SecurityProtocol.PLAINTEXT
    assert loaded() == (("PLAINTEXT", plaintext, "127.0.0.1", 9092, "127.0.0.1", 0, "port"),)
    (everywhere,) = loaded(host="0.0.0.0", port="1")
    assert (everywhere.listened, everywhere.advertised) == ("PLAINTEXT://0.0.0.0:1", "PLAINTEXT://:1")
    assert everywhere.local_address == "127.0.0.1:1"
    (told,) = loaded(host="0.0.0.0", advertised_host="broker", advertised_port="2")
    assert told.advertised == "PLAINTEXT://broker:2"


def test_the_internal_settings_are_the_short_form_of_a_second_one() -> None:
    _, inside = loaded(internal_port="29092", internal_advertised_host="broker")
    assert (inside.listened, inside.advertised) == ("INTERNAL://0.0.0.0:29092", "INTERNAL://broker:29092")
    assert inside.setting == "internal.port"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_listeners_are_a_list_of_any_length_in_its_order(count: int) -> None:
    names = [f"L{number}" for number in range(count)]
    listeners = loaded(
        listeners=", ".join(f"{name.lower()}://10.0.0.1:{9000 + at}" for at, name in enumerate(names)),
        listener_security_protocol_map=",".join(f"{name}:plaintext" for name in names),
    )
    assert [(listener.name, listener.port) for listener in listeners] == [
        (name, 9000 + at) for at, name in enumerate(names)
    ]
    assert {listener.setting for listener in listeners} == {"listeners"}


def test_each_listener_advertises_what_is_said_of_it_or_where_it_listens() -> None:
    outside, inside = BrokerConfig.load(
        {**TWO, "advertised.listeners": "outside://example.org:1"}
    ).listener_configs
    assert outside.advertised == "OUTSIDE://example.org:1"
    assert inside.advertised == "INSIDE://10.0.0.1:29092"
    nobody_said, _ = BrokerConfig.load(TWO).listener_configs
    assert nobody_said.advertised == "OUTSIDE://:9092"  # Where the client connected to.


def test_the_short_form_of_the_address_may_be_advertised_by_the_list() -> None:
    (listener,) = loaded(port="1", advertised_listeners="PLAINTEXT://example.org:2")
    assert (listener.listened, listener.advertised) == (
        "PLAINTEXT://127.0.0.1:1",
        "PLAINTEXT://example.org:2",
    )


def test_an_empty_host_listens_everywhere_and_ipv6_is_in_brackets() -> None:
    (everywhere,) = loaded(listeners="PLAINTEXT://:9092")
    assert (everywhere.host, everywhere.advertised_host) == ("0.0.0.0", "")
    (six,) = loaded(listeners="PLAINTEXT://[2001:db8::1]:9092")
    assert six.host == "2001:db8::1"
    assert six.listened == six.advertised == "PLAINTEXT://[2001:db8::1]:9092"


def test_a_toml_file_may_have_the_list_as_a_list_or_as_kafka_s_text(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    protocols = '"listener.security.protocol.map" = "A:PLAINTEXT,B:PLAINTEXT"\n'
    file.write_text('listeners = ["A://:1", "B://:2"]\n' + protocols)
    as_list = BrokerConfig.load(file=file)
    file.write_text('listeners = "A://:1,B://:2"\n' + protocols)
    assert BrokerConfig.load(file=file).listener_configs == as_list.listener_configs
    file.write_text("listeners = [1, 2]\n")
    with pytest.raises(ConfigError, match="listeners: expected a list, each item text"):
        BrokerConfig.load(file=file)


def test_the_ports_that_the_system_chose_replace_those_of_the_settings_in_either_form() -> None:
    short = BrokerConfig(port=0, internal_port=0).with_ports([1, 2])
    assert [listener.port for listener in short.listener_configs] == [1, 2]
    lists = BrokerConfig.load({**TWO, "listeners": "OUTSIDE://:0,INSIDE://[::1]:0"}).with_ports([1, 2])
    assert [listener.listened for listener in lists.listener_configs] == [
        "OUTSIDE://0.0.0.0:1",
        "INSIDE://[::1]:2",
    ]


@pytest.mark.parametrize(
    "short",
    [
        "host",
        "port",
        "internal.host",
        "internal.port",
        "advertised.host",
        "advertised.port",
        "internal.advertised.host",
        "internal.advertised.port",
    ],
)
def test_a_list_and_its_short_form_exclude_each_other(short: str) -> None:
    value = "7" if short.endswith("port") else "example.org"
    complaint = complaint_about({"listeners": "PLAINTEXT://:9092", short: value})
    assert "listeners (from the command line) cannot be set together with" in complaint
    assert f"{short} (from the command line)" in complaint
    if "advertised" in short:
        complaint = complaint_about({"advertised.listeners": "PLAINTEXT://a:9092", short: value})
        assert complaint.startswith("advertised.listeners")


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_a_listener_named_like_a_protocol_uses_it_and_any_other_one_that_the_map_gives_it(
    protocol: SecurityProtocol,
) -> None:
    (named,) = loaded(listeners=f"{protocol}://:9092")
    assert named.security_protocol is protocol
    (mapped,) = loaded(
        listeners="OUTSIDE://:9092", listener_security_protocol_map=f"outside:{protocol.lower()}"
    )
    assert mapped.security_protocol is protocol
    (short,) = loaded(listener_security_protocol_map=f"PLAINTEXT:{protocol}")
    assert short.security_protocol is protocol


def test_each_protocol_says_whether_it_has_tls_and_whether_it_has_sasl() -> None:
    assert [protocol for protocol in SecurityProtocol if protocol.has_tls] == ["SSL", "SASL_SSL"]
    assert [protocol for protocol in SecurityProtocol if protocol.has_sasl] == ["SASL_PLAINTEXT", "SASL_SSL"]


def test_a_short_form_in_another_source_is_refused_as_well_and_both_sources_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load({"port": "9092"}, environ={"TIDELOG_LISTENERS": "PLAINTEXT://:9092"})
    assert "listeners (from TIDELOG_LISTENERS)" in str(caught.value)
    assert "port (from the command line)" in str(caught.value)


@pytest.mark.parametrize("protocol", ["NOISE", "TLS", ""])
def test_a_security_protocol_that_is_not_supported_is_refused_with_those_that_are(protocol: str) -> None:
    complaint = complaint_about({**TWO, "listener.security.protocol.map": f"OUTSIDE:{protocol}"})
    assert f"gives OUTSIDE the security protocol {protocol!r}, which is not supported" in complaint
    assert complaint.endswith("this broker supports PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"listeners": "0.0.0.0:9092"},
            "listeners: expected NAME://host:port, such as PLAINTEXT://0.0.0.0:9092",
        ),
        ({"listeners": "PLAINTEXT://a:65536"}, "got 'PLAINTEXT://a:65536' (a port is at most 65535"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "write IPv6 in brackets"),
        ({"listeners": "PLAINTEXT://a:1,"}, "got ''"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "listeners names PLAINTEXT twice"),
        ({"listeners": "INSIDE://a:1"}, "no security protocol: add INSIDE:PROTOCOL to"),
        ({**TWO, "listeners": "SSL://a:1"}, "the listener SSL has no security protocol: add SSL:PROTOCOL to"),
        ({**TWO, "listeners": "OUTSIDE://a:1,INSIDE://a:1"}, "OUTSIDE and INSIDE both listen on a:1"),
        ({"internal.port": "9092", "host": "0.0.0.0"}, "PLAINTEXT and INTERNAL both listen on 0.0.0.0:9092"),
        ({"advertised.listeners": "OUTSIDE://a:1"}, "names OUTSIDE, but the listeners are PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no client can connect to it"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "expected NAME:PROTOCOL, such as IN:PLAINTEXT"),
        ({"listener.security.protocol.map": "A:PLAINTEXT,a:PLAINTEXT"}, "names A twice"),
    ],
)
def test_what_is_wrong_is_refused_with_what_was_expected(given: dict[str, str], complaint: str) -> None:
    assert complaint in complaint_about(given)


def test_several_listeners_may_leave_their_port_to_the_system() -> None:
    outside, inside = BrokerConfig.load({**TWO, "listeners": "OUTSIDE://:0,INSIDE://:0"}).listener_configs
    assert outside.port == inside.port == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "A"),
        ({"inter.broker.listener.name": "c"}, "C"),
        ({"security.inter.broker.protocol": "SSL"}, "B"),
    ],
)
def test_brokers_reach_each_other_by_one_listener(settings: dict[str, str], name: str) -> None:
    assert BrokerConfig.load({**THREE, **settings}).inter_broker_listener.name == name


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"inter.broker.listener.name": "D"}, "one of the listeners A (PLAINTEXT), B (SSL), C (SSL), got D"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "got SASL_SSL"),
        ({"inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"}, "not both"),
    ],
)
def test_a_listener_for_brokers_that_does_not_exist_is_refused(
    settings: dict[str, str], complaint: str
) -> None:
    assert complaint in complaint_about({**THREE, **settings})
