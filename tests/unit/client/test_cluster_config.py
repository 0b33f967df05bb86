"""The way to a cluster is one value: made in one place, passed whole, and silent about what is secret."""

import ast
import inspect
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tidelog
from tests.unit.client.cluster_settings import OBJECTS, another, with_another
from tidelog.client.admin import Admin
from tidelog.client.cluster_config import (
    ClusterConfig,
    ClusterSettings,
    cluster_from_options,
    take_cluster,
)
from tidelog.client.consumer import Consumer
from tidelog.client.consumer_config import ConsumerConfig, ConsumerSettings
from tidelog.client.producer import Producer
from tidelog.client.producer_config import ProducerConfig, ProducerSettings
from tidelog.protocol.settings import ConfigError, settings_of

CLIENTS: list[Any] = [Producer, Consumer, Admin]
TABLES: dict[Any, tuple[Any, ...]] = {
    Producer: (ClusterConfig, ProducerConfig),
    Consumer: (ClusterConfig, ConsumerConfig),
    Admin: (ClusterConfig,),
}
SETTINGS = settings_of(ClusterConfig)
(CONTEXT,) = [each for each in SETTINGS if each.attribute == "ssl_context"]
ROOT = Path(tidelog.__file__).parent.parent


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("each", SETTINGS, ids=lambda each: each.attribute)
def test_every_setting_of_a_cluster_is_a_keyword_of_every_client(client: Any, each: Any) -> None:
    made = client(**with_another(each))
    assert getattr(made._cluster.config, each.attribute) == another(each)
    assert each.attribute in inspect.signature(client).parameters


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_takes_the_way_to_a_cluster_whole_and_what_stands_beside_it_goes_first(client: Any) -> None:
    cluster = ClusterConfig("a:1,b:2", client_id="mine", request_timeout_ms=5)
    assert client(cluster=cluster)._cluster.config == cluster
    beside = client(cluster=cluster, client_id="other")._cluster.config
    assert (str(beside), beside.client_id, beside.request_timeout_ms) == ("a:1,b:2", "other", 5)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_defaults_that_a_constructor_shows_are_those_of_its_tables(client: Any) -> None:
    shown = {name: each.default for name, each in inspect.signature(client).parameters.items()}
    declared = {each.attribute: each.default for table in TABLES[client] for each in settings_of(table)}
    assert {name: shown[name] for name in declared} == declared | {"client_id": shown["client_id"]}
    assert shown["client_id"] == client()._cluster.config.client_id == f"tidelog-{client.__name__.lower()}"


@pytest.mark.parametrize(
    ("keywords", "tables"),
    [
        (ClusterSettings, (ClusterConfig,)),
        (ProducerSettings, TABLES[Producer]),
        (ConsumerSettings, TABLES[Consumer]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_type_checkers_see_the_settings_that_the_tables_declare(keywords: Any, tables: Any) -> None:
    declared = [(table, each.attribute) for table in tables for each in settings_of(table)]
    hints = {name: get_type_hints(table)[name] for table, name in declared}
    assert get_type_hints(keywords) == hints | {"cluster": ClusterConfig}


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_keyword_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_server'"):
        client(bootstrap_server="a:1")


def test_it_never_changes_is_compared_by_value_and_travels_to_other_processes() -> None:
    cluster = ClusterConfig(["a:1", "b"])
    assert cluster == ClusterConfig("a:1, b:9092")
    assert hash(cluster) == hash(pickle.loads(pickle.dumps(cluster)))
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    with pytest.raises(FrozenInstanceError):
        cluster.client_id = "x"  # type: ignore[misc]


def test_a_secret_setting_is_shown_nowhere_and_is_not_lost() -> None:
    secrets = [each for each in SETTINGS if each.is_secret]
    assert {each.attribute for each in secrets} == {
        "ssl_password",
        "sasl_plain_password",
        "sasl_oauthbearer_client_credentials_client_secret",
    }
    for each in secrets:
        given = {**with_another(each), each.attribute: "hunter2"}
        cluster = ClusterConfig("a:1", **given)
        assert "hunter2" not in f"{cluster!r} {cluster} {[cluster]}"
        assert getattr(pickle.loads(pickle.dumps(cluster)), each.attribute) == "hunter2"
        with pytest.raises(ConfigError) as caught:
            ClusterConfig("a:1", **{**given, each.attribute: ("hunter2",)})
        assert "hunter2" not in str(caught.value)


def test_options_by_kafkas_names_give_back_what_they_were_made_of() -> None:
    for each in SETTINGS:
        cluster = ClusterConfig(**{"bootstrap_servers": "a:1", **with_another(each)})
        if each.attribute in OBJECTS:
            with pytest.raises(ConfigError, match=f"{each.attribute} cannot be given to other processes"):
                cluster.to_options()
            continue
        assert cluster_from_options(cluster.to_options()) == cluster
    assert ClusterConfig("a:1").to_options() == {"bootstrap.servers": "a:1"}
    assert cluster_from_options({"client.id": "x", "topic": "t"}) is None


def test_what_belongs_to_the_client_itself_is_left_with_the_keywords() -> None:
    keywords: dict[str, Any] = {"client_id": "x", "acks": "all"}
    assert take_cluster(keywords, ProducerConfig, client_id="default").client_id == "x"
    assert keywords == {"acks": "all"}
    assert take_cluster({}, client_id="default").client_id == "default"
    with pytest.raises(TypeError, match="did you mean bootstrap_servers"):
        take_cluster({"bootstrap_server": "a:1"}, client_id="default")


@pytest.mark.parametrize("servers", [None, 9092, ["a:1", 2], {"a": 1}])
def test_servers_are_text_or_a_list_of_text(servers: Any) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        ClusterConfig(servers)


@pytest.mark.parametrize("package", ["client", "cli", "pipeline"])
def test_no_function_takes_a_cluster_by_its_parts(package: str) -> None:
    """Whoever passes servers on as text would have to pass each setting that comes to be added too."""
    offences = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = (*node.args.args, *node.args.kwonlyargs)
                if any("servers" in each.arg and each.arg != "servers" for each in arguments):
                    offences.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert offences == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile needs security_protocol=SSL or SASL_SSL, not PLAINTEXT"),
        (
            {"sasl_plain_password": "hunter2"},
            "sasl_plain_password needs security_protocol=SASL_PLAINTEXT or SASL_SSL, not PLAINTEXT",
        ),
        ({"security_protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, not 'TLS'"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "must be an ssl.SSLContext or None, not str"),
        (
            {"security_protocol": "SSL", "ssl_context": another(CONTEXT), "ssl_cafile": "ca.pem"},
            "either ssl_context or ssl_cafile",
        ),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "need ssl_certfile"),
        ({"security_protocol": "SASL_SSL"}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, not 'GSSAPI'",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "needs sasl_oauth_token_provider",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_oauth_token_provider": "token"},
            "an object with a method token\\(\\), not str",
        ),
    ],
)
def test_settings_of_security_that_cannot_work_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        ClusterConfig("a:1", **settings)
    assert "hunter2" not in str(caught.value)
