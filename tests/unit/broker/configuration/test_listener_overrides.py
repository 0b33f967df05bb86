"""Settings of one listener: their names, where they may come from, and for whom they hold."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError, unknown_variables
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.sasl_settings import MECHANISMS

TWO = {
    "listeners": "SASL_SSL://:9092,IN-SIDE.1://:29092",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,IN-SIDE.1:SSL",
}


def test_a_setting_of_one_listener_holds_for_it_alone() -> None:
    config = BrokerConfig.load({**TWO, "listener.name.in-side.1.ssl.client.auth": "required"})
    assert config.of_listener("IN-SIDE.1").ssl_client_auth == "required"
    assert config.of_listener("SASL_SSL").ssl_client_auth == config.ssl_client_auth == "none"


def test_a_listener_without_own_settings_has_those_of_the_broker() -> None:
    config = BrokerConfig.load({**TWO, "ssl.enabled.protocols": "TLSv1.3"})
    assert config.of_listener("SASL_SSL") is config


def test_a_setting_of_one_mechanism_holds_for_it_alone() -> None:
    prefix = "listener.name.sasl_ssl."
    given = {
        f"{prefix}connections.max.reauth.ms": 100,
        f"{prefix}scram-sha-256.connections.max.reauth.ms": 200,
        f"{prefix}oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer",
    }
    config = BrokerConfig.load({**TWO, **given})
    times = {name: config.of_listener("SASL_SSL", name).connections_max_reauth_ms for name in MECHANISMS}
    assert times == {"PLAIN": 100, "SCRAM-SHA-256": 200, "SCRAM-SHA-512": 100, "OAUTHBEARER": 100}
    assert config.of_listener("SASL_SSL", "OAUTHBEARER").sasl_oauthbearer_expected_issuer == "https://issuer"
    assert config.of_listener("IN-SIDE.1", "OAUTHBEARER") is config


def test_only_its_own_setting_makes_clients_of_sasl_present_a_certificate() -> None:
    for_all = {**TWO, "ssl.client.auth": "required"}
    config = BrokerConfig.load(for_all)
    assert config.of_listener("IN-SIDE.1").ssl_client_auth == "required"
    assert config.of_listener("SASL_SSL").ssl_client_auth == "none"
    config = BrokerConfig.load({**for_all, "listener.name.sasl_ssl.ssl.client.auth": "required"})
    assert config.of_listener("SASL_SSL").ssl_client_auth == "required"


def test_the_file_the_environment_and_the_command_line_give_it_and_the_strongest_counts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('"listener.name.sasl_ssl.ssl.keystore.location" = "a.pem"\n')
    assert BrokerConfig.load(TWO, file=file).of_listener("SASL_SSL").ssl_keystore_location == "a.pem"
    environ = {"TIDELOG_LISTENER_NAME_SASL_SSL_SSL_KEYSTORE_LOCATION": "b.pem"}
    config = BrokerConfig.load(TWO, file=file, environ=environ)
    assert config.of_listener("SASL_SSL").ssl_keystore_location == "b.pem"
    assert unknown_variables(environ) == {}
    given = {**TWO, "listener.name.SASL_SSL.ssl.keystore.location": "c.pem"}
    config = BrokerConfig.load(given, file=file, environ=environ)
    assert config.of_listener("SASL_SSL").ssl_keystore_location == "c.pem"
    assert config.with_settings({"node.id": 7}).of_listener("SASL_SSL").ssl_keystore_location == "c.pem"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("listener.name.outside.ssl.client.auth", "none", "the listeners are SASL_SSL, IN-SIDE.1"),
        ("listener.name.sasl_ssl.plain.ssl.client.auth", "none", "for the listener sasl.ssl.plain"),
        (
            "listener.name.sasl_ssl.gssapi.connections.max.reauth.ms",
            "1",
            "or one with a mechanism (plain, scram.sha.256, scram.sha.512, oauthbearer) behind it",
        ),
        (
            "listener.name.sasl_ssl.ssl.client.aut",
            "none",
            "did you mean listener.name.sasl.ssl.ssl.client.auth?",
        ),
        (
            "listener.name.sasl_ssl.log.segment.bytes",
            "1",
            "unknown setting listener.name.sasl.ssl.log.segment",
        ),
        (
            "listener.name.sasl_ssl.ssl.client.auth",
            "maybe",
            "expected none, requested or required, got 'maybe'",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_what_was_expected(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load({**TWO, name: value})
    assert complaint in str(caught.value)
    assert "(from the command line)" in str(caught.value)


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


@pytest.mark.parametrize("value", ["x", 'PlainLoginModule required username="b" user_alice="s";'])
def test_the_users_of_clients_are_not_in_the_jaas_config(value: str) -> None:
    with pytest.raises(ConfigError, match="with `tidelog user add`"):
        BrokerConfig.load({"sasl.jaas.config": value})


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
