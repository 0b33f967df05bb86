"""Settings of topics and brokers: described with their story, changed at once, refused with a reason."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.cluster.catalog import BrokerConfigsChanged
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import ConfigSource
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.broker.handlers.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]


async def described(
    asker: Asker,
    resource_type: int,
    name: str,
    *,
    keys: list[str] | None = None,
    version: int = 4,
    **more: bool,
) -> Any:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **more)
    return answer.results[0]


async def test_a_setting_of_kerberos_is_taken_and_said_to_have_no_effect(asker: Asker) -> None:
    """librdkafka's tests set it, and Kafka takes it also without Kerberos."""
    name = "sasl.kerberos.min.time.before.relogin"
    with capture_logs() as events:
        assert (await broker_changed(asker, "1", **{name.replace(".", "_"): "58000"})).error_code == 0
    assert [each["setting"] for each in events if each["event"] == "broker_setting_without_effect"] == [name]
    answer = await described(asker, BROKER_RESOURCE, "1", keys=[name], include_documentation=True)
    (config,) = answer.configs
    assert (config.value, config.config_source) == ("58000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert "no effect" in config.documentation


FINE = {
    "retention.ms": "log.retention.ms",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "flush.ms": "log.flush.interval.ms",
}


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("given", ["nothing", "the fine name", "a coarse name"])
async def test_a_synonym_is_listed_only_where_it_is_set_by_its_own_name(
    open_asker: Open, name: str, given: str
) -> None:
    """As in Kafka, where settings in milliseconds have no default: that of the coarser ones holds."""
    coarse = [each for each, (stands_for, _) in COARSE_SETTINGS.items() if stands_for == FINE[name]][-1]
    settings = {"nothing": {}, "the fine name": {FINE[name]: "3600000"}, "a coarse name": {coarse: "1"}}
    config = BrokerConfig.load(settings[given])
    asker = await open_asker(
        **{each: getattr(config, each) for each in config.sources}, sources=config.sources
    )
    await asker.create("t")
    answer = await described(asker, TOPIC_RESOURCE, "t", keys=[name], include_synonyms=True)
    (found,) = answer.configs
    expected = [(FINE[name], "3600000", ConfigSource.STATIC_BROKER_CONFIG)]
    listed = [(held.name, held.value, held.source) for held in found.synonyms]
    assert listed == (expected if given == "the fine name" else [])
    source = ConfigSource.DEFAULT_CONFIG if given == "nothing" else ConfigSource.STATIC_BROKER_CONFIG
    assert (found.config_source, bool(found.value)) == (source, True)


async def broker_changed(asker: Asker, name: str, **configs: str | None) -> Any:
    """Set these of a broker, or delete those that are None."""
    changes = [
        {"name": key.replace("_", "."), "config_operation": int(value is None), "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": name, "configs": changes}
    answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    return answer.responses[0]


async def test_stored_settings_that_no_longer_hold_do_not_keep_a_broker_from_starting(
    open_asker: Open,
) -> None:
    asker = await open_asker()
    stored = {"gone.setting": "1", "node.id": "9", "num.partitions": "-4", "max.connections": "8"}
    await asker.services.cluster.change(lambda _: BrokerConfigsChanged("1", stored))
    await asker.services.close()
    with capture_logs() as events:
        asker = await open_asker()
    assert [event["event"] for event in events].count("broker_setting_ignored") == 3
    config = asker.services.config
    assert (config.max_connections, config.node_id, config.num_partitions) == (8, 1, 1)
    assert (await broker_changed(asker, "1", group_max_size="2")).error_code == 0
    kept = {"max.connections": "8", "group.max.size": "2"}
    assert asker.services.catalog.broker_configs == {"1": kept}
