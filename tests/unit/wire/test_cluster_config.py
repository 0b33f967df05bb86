"""The way to a cluster is one value: made in one place, passed whole, and silent about what is secret."""

import ast
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.unit.wire.cluster_settings import OBJECTS, another, with_another
from tidelog.protocol.settings import ConfigError, settings_of
from tidelog.wire.cluster_config import ClusterConfig, cluster_from_options

SETTINGS = settings_of(ClusterConfig)
(CONTEXT,) = [each for each in SETTINGS if each.attribute == "ssl_context"]
ROOT = Path(tidelog.__file__).parent


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


@pytest.mark.parametrize("servers", [None, 9092, ["a:1", 2], {"a": 1}])
def test_servers_are_text_or_a_list_of_text(servers: Any) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        ClusterConfig(servers)


@pytest.mark.parametrize("package", ["wire", "client", "cli", "pipeline"])
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
        ({"security_protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, got 'TLS'"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "expected an ssl.SSLContext or None, got str"),
        (
            {"security_protocol": "SSL", "ssl_context": another(CONTEXT), "ssl_cafile": "ca.pem"},
            "either ssl_context or ssl_cafile",
        ),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "need ssl_certfile"),
        ({"security_protocol": "SASL_SSL"}, "PLAIN needs sasl_plain_username and sasl_plain_password"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, got 'GSSAPI'",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "needs sasl_oauth_token_provider",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_oauth_token_provider": "token"},
            "an object with a method token\\(\\), got str",
        ),
    ],
)
def test_settings_of_security_that_cannot_work_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        ClusterConfig("a:1", **settings)
    assert "hunter2" not in str(caught.value)
