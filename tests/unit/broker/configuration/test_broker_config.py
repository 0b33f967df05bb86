"""The settings of a broker: sources, names, bounds, and what a person is told who gets one wrong."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError, unknown_variables
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.configuration.settings import flatten, parse_assignment, variable_of
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.configuration.topic_settings import TOPIC_SETTINGS
from tidelog.broker.opening import _base_log_config
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.settings import settings_of


def test_a_flag_wins_over_the_environment_which_wins_over_the_file_which_wins_over_the_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('port = 1\nnode.id = 1\nlog.segment.bytes = 1000\n"max.connections" = 7\n')
    environ = {"TIDELOG_PORT": "2", "TIDELOG_NODE_ID": "2"}
    config = BrokerConfig.load({"port": "3"}, environ=environ, file=file)
    assert (config.port, config.node_id, config.log_segment_bytes) == (3, 2, 1000)
    assert (config.max_connections, config.message_max_bytes) == (7, 1_048_588)
    sources = {line.name: line.source for line in config.describe()}
    assert sources["port"] == "the command line"
    assert sources["node.id"] == "TIDELOG_NODE_ID"
    assert sources["log.segment.bytes"] == str(file)
    assert sources["message.max.bytes"] == "default"


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text("[log.segment]\nbytes = 4096\n")
    config = BrokerConfig.load(environ={"TIDELOG_CONFIG_FILE": str(file)})
    assert config.log_segment_bytes == 4096


def test_every_setting_is_described_named_like_kafka_and_has_a_default_that_it_may_hold() -> None:
    for setting in settings_of(BrokerConfig):
        assert setting.description.endswith("."), setting.name
        assert setting.name == setting.attribute.replace("_", ".")
        assert variable_of(setting.name) == "TIDELOG_" + setting.attribute.upper()
        kind = tuple if setting.is_many else setting.kind
        held = setting.parse(setting.default)
        assert (held, isinstance(held, kind)) == (setting.default, True), setting.name


def test_every_value_survives_being_written_as_text() -> None:
    default = BrokerConfig()
    text = {line.name: line.value for line in default.describe()}
    for setting in settings_of(BrokerConfig):
        again = BrokerConfig.load({setting.name: text[setting.name]})
        assert getattr(again, setting.attribute) == getattr(default, setting.attribute), setting.name


def test_an_unknown_setting_is_refused_with_the_one_that_was_probably_meant() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown setting log\.segmnt\.bytes.*did you mean log\.segment\.bytes\?"
    ):
        BrokerConfig.load({"log.segmnt.bytes": "1"})
    with pytest.raises(ConfigError, match="`tidelog config` lists all settings"):
        BrokerConfig.load({"frobnicate": "1"})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("port", "abc", "port: expected a whole number from 0 to 65535, got 'abc' (from the command line)"),
        ("port", "65536", "port: expected a whole number from 0 to 65535"),
        ("log.segment.bytes", "1.5", "log.segment.bytes: expected a whole number"),
        ("auto.create.topics.enable", "perhaps", "expected true or false, got 'perhaps'"),
        ("log.message.timestamp.type", "Sometime", "expected CreateTime or LogAppendTime"),
        ("producer.id.unknown.sequence", "guess", "expected reject or accept"),
        ("host", "", "host: expected an address"),
        ("data.dir", "", "data.dir: expected a path"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_what_was_expected(
    name: str, value: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load({name: value})
    assert complaint in str(caught.value)


def test_the_constructor_checks_as_the_outward_sources_do() -> None:
    with pytest.raises(ConfigError, match="port: expected"):
        BrokerConfig(port=-1)
    with pytest.raises(ConfigError, match="port: expected"):
        BrokerConfig(port=True)
    assert BrokerConfig(data_dir="somewhere").data_dir == Path("somewhere")  # type: ignore[arg-type]


def test_booleans_numbers_and_choices_are_read_as_people_write_them() -> None:
    config = BrokerConfig.load(
        {
            "auto.create.topics.enable": "No",
            "log.segment.bytes": "1_048_576",
            "log.message.timestamp.type": "logappendtime",
        }
    )
    assert config.auto_create_topics_enable is False
    assert config.log_segment_bytes == 1 << 20
    assert config.log_message_timestamp_type == "LogAppendTime"


def test_a_config_is_changed_only_by_copying_it() -> None:
    config = BrokerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]
    assert config.with_settings({"port": "1"}).port == 1
    assert config.port == 9092


def test_topic_defaults_are_text_under_the_topic_settings_names() -> None:
    defaults = BrokerConfig(log_segment_bytes=1 << 20, log_roll_ms=5).topic_defaults()
    assert defaults["segment.bytes"] == "1048576"
    assert defaults["segment.ms"] == "5"
    assert defaults["retention.bytes"] == "-1"
    assert defaults["max.message.bytes"] == "1048588"


def test_a_variable_that_is_no_setting_is_named_and_not_refused() -> None:
    environ = {
        "TIDELOG_SERVICE_HOST": "10.0.0.1",
        "TIDELOG_PORT": "1",
        "TIDELOG_CONFIG_FILE": "",
        "TIDELOG_LOG_SEGMENT_BYTE": "1",
        "HOME": "/",
    }
    assert unknown_variables(environ) == {
        "TIDELOG_LOG_SEGMENT_BYTE": "did you mean TIDELOG_LOG_SEGMENT_BYTES?",
        "TIDELOG_SERVICE_HOST": "`tidelog config` lists all",
    }
    assert BrokerConfig.load(environ=environ).port == 1


def test_the_port_that_kubernetes_sets_is_explained() -> None:
    with pytest.raises(ConfigError, match="enableServiceLinks"):
        BrokerConfig.load(environ={"TIDELOG_PORT": "tcp://10.0.0.1:9092"})


def test_a_file_that_cannot_be_read_or_is_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*nowhere\.toml"):
        BrokerConfig.load(file=tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 1")
    with pytest.raises(ConfigError, match=r"broken\.toml is not TOML"):
        BrokerConfig.load(file=broken)
    broken.write_text("prot = 1")
    with pytest.raises(
        ConfigError, match=r"unknown setting prot \(from .*broken\.toml\): did you mean port\?"
    ):
        BrokerConfig.load(file=broken)


def test_assignments_are_name_equals_value() -> None:
    assert parse_assignment("a.b = c=d ") == ("a.b", "c=d")
    for wrong in ("a.b", "=c", ""):
        with pytest.raises(ConfigError, match="--set: expected name=value"):
            parse_assignment(wrong)


def test_nested_tables_become_dotted_names() -> None:
    assert flatten({"log": {"segment": {"bytes": 1}, "roll_ms": 2}}) == {
        "log.segment.bytes": 1,
        "log.roll.ms": 2,
    }


def test_a_topics_setting_and_the_brokers_that_holds_without_it_name_each_other() -> None:
    by_name = {each.name: each for each in settings_of(BrokerConfig)}
    topic_settings = {
        name: each.extras["broker_name"]
        for name, each in TOPIC_SETTINGS.items()
        if each.extras["broker_name"] in by_name
    }
    assert topic_settings == {
        each.extras["topic_setting"]: each.name for each in by_name.values() if "topic_setting" in each.extras
    }


def test_a_log_without_settings_is_the_log_of_a_broker_without_settings() -> None:
    """One default each: what a log takes by itself is what a broker gives it where nobody set anything."""
    base = _base_log_config(BrokerConfig())
    assert TopicConfigs(BrokerSettings(BrokerConfig())).log_config({}, base) == base == LogConfig()


def test_the_memory_of_all_connections_holds_the_largest_request() -> None:
    BrokerConfig(queued_max_bytes=200, socket_request_max_bytes=100)
    with pytest.raises(ConfigError, match=r"queued\.max\.bytes: expected at least twice.*\(101\).*got 200"):
        BrokerConfig(queued_max_bytes=200, socket_request_max_bytes=101)


@pytest.mark.parametrize("name", ["session_timeout_ms", "heartbeat_interval_ms"])
def test_timeouts_of_consumer_groups_lie_within_their_own_bounds(name: str) -> None:
    default: int = getattr(BrokerConfig(), f"group_consumer_{name}")
    BrokerConfig(**{f"group_consumer_{name}": default - 1, f"group_consumer_min_{name}": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"group.consumer.{name.replace('_', '.')}: expected"):
        BrokerConfig(**{f"group_consumer_{name}": default - 1})  # type: ignore[arg-type]


def test_consumer_groups_have_an_assignor() -> None:
    assert BrokerConfig(group_consumer_assignors=("range",)).group_consumer_assignors == ("range",)
    with pytest.raises(ConfigError, match=r"group.consumer.assignors must have an assignor"):
        BrokerConfig(group_consumer_assignors=())


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl_enabled_mechanisms": ()},
        {"sasl_enabled_mechanisms": ("GSSAPI",)},
        {"sasl_oauthbearer_jwks_endpoint_url": "ftp://host/keys"},
        {"sasl_oauthbearer_jwks_endpoint_url": "https://"},
        {"sasl_oauthbearer_jwks_endpoint_url": "/etc/keys.json"},
        {"sasl_oauthbearer_jwks_endpoint_url": "https://user:hidden@host/keys"},
    ],
)
def test_settings_of_sasl_that_cannot_work_are_refused_without_showing_a_password(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError, match="sasl") as caught:
        BrokerConfig(**settings)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://user:secret@127.0.0.1:8081", "must not hold a user or a password"),
        ("file:///etc/passwd", "must be a URL that begins with"),
        ("127.0.0.1:8081", "must be a URL that begins with"),
        ("http://", "must be a URL that begins with"),
    ],
)
def test_a_schema_registry_is_an_address_without_a_password(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        BrokerConfig(console_schema_registry_url=url)
    assert "secret" not in str(caught.value)
    assert BrokerConfig(console_schema_registry_url="https://registry:8081/a").console_schema_registry_url


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({"cluster.store": "etcd:http://a:2379", "listeners": "SASL_PLAINTEXT://:1"}, True),
        ({"cluster.store": "etcd:http://a:2379", "authorizer.class.name": STANDARD_AUTHORIZER}, True),
        ({"cluster.store": "etcd:http://a:2379"}, False),
        ({"cluster.store": "etcd:https://a:2379", "listeners": "SASL_PLAINTEXT://:1"}, False),
        ({"cluster.store": "", "listeners": "SASL_PLAINTEXT://:1"}, False),
    ],
)
def test_an_etcd_without_password_and_tls_is_open_where_a_listener_is_not(
    settings: dict[str, str], is_open: bool
) -> None:
    assert BrokerConfig.load(settings).has_open_store is is_open
    file = {"TIDELOG_CLUSTER_STORE_PASSWORD": "secret"}
    assert not BrokerConfig.load(settings, environ=file).has_open_store
