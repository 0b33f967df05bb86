"""The settings of a broker: sources, names, bounds, and what a person is told who gets one wrong."""

import dataclasses
from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.configuration.settings import flatten, parse_assignment, variable_of
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.opening import _base_log_config
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.settings import settings_of


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


def test_the_constructor_checks_as_the_outward_sources_do() -> None:
    with pytest.raises(ConfigError, match="port: expected"):
        BrokerConfig(port=-1)
    with pytest.raises(ConfigError, match="port: expected"):
        BrokerConfig(port=True)
    assert BrokerConfig(data_dir="somewhere").data_dir == Path("somewhere")  # type: ignore[arg-type]


def test_a_config_is_changed_only_by_copying_it() -> None:
    config = BrokerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]
    assert config.with_settings({"port": "1"}).port == 1
    assert config.port == 9092


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


def test_a_log_without_settings_is_the_log_of_a_broker_without_settings() -> None:
    """One default each: what a log takes by itself is what a broker gives it where nobody set anything."""
    base = _base_log_config(BrokerConfig())
    assert TopicConfigs(BrokerSettings(BrokerConfig())).log_config({}, base) == base == LogConfig()


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


def test_each_coarse_setting_sets_the_one_that_it_stands_for_and_is_not_listed_itself() -> None:
    names = {line.name for line in BrokerConfig().describe()}
    for name, (stands_for, unit_ms) in COARSE_SETTINGS.items():
        assert stands_for in names
        assert name not in names
        config = BrokerConfig.load({name: "3"})
        assert getattr(config, stands_for.replace(".", "_")) == 3 * unit_ms
