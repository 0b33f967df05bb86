"""Settings of one listener: their names, where they may come from, and for whom they hold."""

from pathlib import Path

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings

TWO = {
    "listeners": "SASL_SSL://:9092,IN-SIDE.1://:29092",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,IN-SIDE.1:SSL",
}


def test_a_listener_without_own_settings_has_those_of_the_broker() -> None:
    config = BrokerConfig.load({**TWO, "ssl.enabled.protocols": "TLSv1.3"})
    assert config.of_listener("SASL_SSL") is config


def test_it_is_listed_and_described_and_a_secret_is_neither(tmp_path: Path) -> None:
    config = BrokerConfig.load(
        {
            **TWO,
            "ssl.key.password": "open sesame",
            "listener.name.sasl_ssl.ssl.key.password": "open barley",
            "listener.name.sasl_ssl.ssl.keystore.location": "a.pem",
        }
    )
    values = {line.name: line.value for line in config.describe()}
    assert values["listener.name.sasl.ssl.ssl.keystore.location"] == "a.pem"
    assert values["ssl.key.password"] == values["listener.name.sasl.ssl.ssl.key.password"] == "(hidden)"
    described = {each.name: each for each in BrokerSettings(config).describe()}
    assert described["listener.name.sasl.ssl.ssl.keystore.location"].value == "a.pem"
    for name in ("ssl.key.password", "listener.name.sasl.ssl.ssl.key.password"):
        assert described[name].is_secret
        assert described[name].value is None
    for text in (repr(config), str(values), str(described)):
        assert "sesame" not in text
        assert "barley" not in text


def test_the_user_of_this_broker_may_be_given_for_one_mechanism_of_a_listener() -> None:
    user = 'org.example.ScramLoginModule required username="b" password="p";'
    config = BrokerConfig.load(
        {
            "listeners": "IN://127.0.0.1:0",
            "listener.security.protocol.map": "IN:SASL_SSL",
            "listener.name.in.scram-sha-512.sasl.jaas.config": user,
        }
    )
    assert config.of_listener("IN", "SCRAM-SHA-512").sasl_jaas_config == user
    assert not config.of_listener("IN", "SCRAM-SHA-256").sasl_jaas_config
