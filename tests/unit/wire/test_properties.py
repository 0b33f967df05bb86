"""Kafka's files and options mean here what they mean there, or they are refused with what to do."""

import pytest

from tidelog.protocol.settings import ConfigError
from tidelog.wire.cluster_config import cluster_from_options, keywords_from_options
from tidelog.wire.properties import parse_properties, to_settings

SERVERS = {"bootstrap.servers": "a:1"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.mark.parametrize(
    ("mechanism", "config"),
    [
        ("PLAIN", f'{PLAIN} required username="alice" password="hunter2";'),
        ("SCRAM-SHA-256", f"{SCRAM} required\n  username='alice'\n  password='hunter2' ; "),
        ("SCRAM-SHA-512", f'{SCRAM} REQUIRED password = hunter2 username="al\\ice";'),
    ],
)
def test_a_users_jaas_config_is_read(mechanism: str, config: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": config}
    cluster = cluster_from_options(SERVERS | given)
    assert cluster is not None
    assert (cluster.sasl_plain_username, cluster.sasl_plain_password) == ("alice", "hunter2")
    assert "hunter2" not in repr(cluster)


def test_a_clients_jaas_config_and_its_identity_provider_are_read() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured"
        ".OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.jaas.config": f'{OAUTH} required clientId="reader" clientSecret="hunter2" scope="logs";',
    }
    assert keywords_from_options(given) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://id.example/token",
        "sasl_oauthbearer_client_credentials_client_id": "reader",
        "sasl_oauthbearer_client_credentials_client_secret": "hunter2",
        "sasl_oauthbearer_scope": "logs",
    }


def test_stores_of_pem_files_and_the_check_of_names_are_read() -> None:
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": "client.pem",
        "ssl.keystore.type": "pem",
        "ssl.key.password": "hunter2",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert keywords_from_options(given) == {
        "security_protocol": "SSL",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "client.pem",
        "ssl_password": "hunter2",
        "ssl_check_hostname": False,
    }
    given["ssl.endpoint.identification.algorithm"] = "HTTPS"
    assert keywords_from_options(given)["ssl_check_hostname"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ssl.truststore.type", "JKS", "expected PEM, got 'JKS'. `keytool"),
        ("ssl.truststore.password", "hunter2", "has no password"),
        ("ssl.keystore.password", "hunter2", "is ssl.key.password"),
        ("ssl.keystore.key", "hunter2", "give ssl.keystore.location"),
        ("ssl.endpoint.identification.algorithm", "ldaps", "expected https, or empty"),
        ("sasl.kerberos.service.name", "kafka", "GSSAPI is not supported"),
        ("sasl.login.callback.handler.class", "com.example.Handler", "class of Java cannot be used"),
        ("sasl.jaas.config", "", None),
        ("sasl.jaas.config", "hunter2", "malformed: expected for example"),
        ("sasl.jaas.config", f'{PLAIN} required username="alice" password="hunter2"', "malformed"),
        ("sasl.jaas.config", f'{PLAIN} optional username="alice";', "malformed"),
        ("sasl.jaas.config", f'{PLAIN} required username="alice" password="hunter2;', "malformed"),
        ("sasl.jaas.config", f'{PLAIN} required username alice password="hunter2";', "malformed"),
        ("sasl.jaas.config", f'{PLAIN} required user="hunter2";', "unknown option; known are username"),
        ("sasl.jaas.config", "com.example.Module required;", "unknown module; known are PlainLoginModule"),
        ("sasl.jaas.config", f"{SCRAM} required;", "does not fit sasl.mechanism=PLAIN"),
    ],
)
def test_what_cannot_have_its_effect_is_refused_without_showing_it(
    name: str, text: str, reason: str | None
) -> None:
    given = {"sasl.mechanism": "PLAIN", name: text}
    if reason is None:
        assert to_settings(given) == {"sasl.mechanism": "PLAIN"}
        return
    with pytest.raises(ConfigError) as caught:
        to_settings(given)
    assert reason in str(caught.value)
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_is_read_as_java_reads_it() -> None:
    text = (
        "# comment\n! comment\n\n  a=1\nb : two words \nc 3\nd=\ne=x\\\n    y\\\n z\nf\\=g=\\u0041\\t\\\\\n"
        'sasl.jaas.config=X required password="p=1#:";\n'
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "two words ",
        "c": "3",
        "d": "",
        "e": "xyz",
        "f=g": "A\t\\",
        "sasl.jaas.config": 'X required password="p=1#:";',
    }
    assert parse_properties("end=\\") == {"end": ""}
    with pytest.raises(ConfigError, match="line 2: expected NAME=VALUE") as caught:
        parse_properties("a=1\n=hunter2\n")
    assert "hunter2" not in str(caught.value)
