"""Settings of topics and brokers: described with their story, changed at once, refused with a reason."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.cluster.catalog import BrokerConfigsChanged
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BROKER_SETTINGS, ConfigSource
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.broker.configuration.topic_settings import ConfigType
from tidelog.broker.handlers.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigOperation
from tidelog.protocol.errors import ErrorCode
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


async def incremented(
    asker: Asker, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    resource = {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
        ],
    }
    answer = await asker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
    )
    return answer.responses[0]


async def altered(asker: Asker, name: str, configs: dict[str, str | None], version: int = 2) -> Any:
    resource = {
        "resource_type": TOPIC_RESOURCE,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, version, resources=[resource])
    return answer.responses[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_settings_tell_where_they_come_from(open_asker: Open, version: int) -> None:
    asker = await open_asker(log_retention_ms=111)
    await asker.create("t", segment_bytes="2048")
    answer = await described(asker, TOPIC_RESOURCE, "t", version=version, include_synonyms=True)
    configs = {config.name: config for config in answer.configs}
    told = {name: (config.value, config.config_source) for name, config in configs.items()}
    assert told["segment.bytes"] == ("2048", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert told["retention.ms"] == ("111", ConfigSource.STATIC_BROKER_CONFIG)
    assert told["cleanup.policy"] == ("delete", ConfigSource.DEFAULT_CONFIG)
    assert [(held.name, held.value, held.source) for held in configs["segment.bytes"].synonyms] == [
        ("segment.bytes", "2048", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert not any(config.read_only or config.is_sensitive for config in answer.configs)


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


async def test_documentation_and_synonyms_only_when_asked_for(asker: Asker) -> None:
    await asker.create("t")
    plain = await described(asker, TOPIC_RESOURCE, "t")
    assert not any(config.documentation or config.synonyms for config in plain.configs)
    full = await described(asker, TOPIC_RESOURCE, "t", include_documentation=True)
    assert all(config.documentation and config.config_type for config in full.configs)


async def test_keys_choose_what_is_described(asker: Asker) -> None:
    await asker.create("t")
    answer = await described(asker, TOPIC_RESOURCE, "t", keys=["retention.ms", "no.such"])
    assert [config.name for config in answer.configs] == ["retention.ms"]


async def test_the_brokers_settings_say_which_are_read_only(open_asker: Open) -> None:
    asker = await open_asker(num_partitions=7)
    answer = await described(asker, BROKER_RESOURCE, "1", include_synonyms=True)
    configs = {config.name: config for config in answer.configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("7", False)
    assert {name for name, config in configs.items() if config.read_only} >= {"node.id", "listeners"}
    assert not any(each.is_secret and each.extras.get("dynamic") for each in BROKER_SETTINGS.values())
    assert configs["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert configs["log.segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    assert not (await described(asker, BROKER_RESOURCE, "")).configs


@pytest.mark.parametrize(
    ("settings", "listeners", "advertised"),
    [
        ({"host": "0.0.0.0", "port": 1}, "PLAINTEXT://0.0.0.0:1", "PLAINTEXT://:1"),
        (
            {
                "listeners": ("A://127.0.0.1:1", "B://[::1]:2"),
                "advertised_listeners": ("B://b.example:3",),
                "listener_security_protocol_map": ("A:PLAINTEXT", "B:PLAINTEXT"),
            },
            "A://127.0.0.1:1,B://[::1]:2",
            "A://127.0.0.1:1,B://b.example:3",
        ),
    ],
    ids=["short form", "lists"],
)
async def test_the_listeners_in_force_are_described_as_lists_in_whichever_form_they_were_set(
    open_asker: Open, settings: dict[str, Any], listeners: str, advertised: str
) -> None:
    asker = await open_asker(**settings)
    answer = await described(asker, BROKER_RESOURCE, "1")
    configs = {config.name: config for config in answer.configs}
    assert (configs["listeners"].value, configs["advertised.listeners"].value) == (listeners, advertised)
    assert {configs[name].config_type for name in ("listeners", "advertised.listeners")} == {ConfigType.LIST}


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC_RESOURCE, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_RESOURCE, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER_RESOURCE, "2", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_here_is_not_described(
    asker: Asker, resource_type: int, name: str, code: ErrorCode
) -> None:
    assert (await described(asker, resource_type, name)).error_code == code


async def test_a_change_holds_for_the_running_log_and_after_a_restart(open_asker: Open) -> None:
    asker = await open_asker()
    await asker.create("t")
    assert (await asker.produce("t", make_batch(b"x" * 500))).error_code == 0
    assert (await incremented(asker, "t", ("max.message.bytes", ConfigOperation.SET, "200"))).error_code == 0
    assert (await asker.produce("t", make_batch(b"x" * 500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await asker.services.close()
    again = await open_asker()
    assert (await again.produce("t", make_batch(b"x" * 500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (
        await incremented(again, "t", ("max.message.bytes", ConfigOperation.DELETE, None))
    ).error_code == 0
    assert (await again.produce("t", make_batch(b"x" * 500))).error_code == 0


async def test_an_incremental_change_keeps_the_others(asker: Asker) -> None:
    await asker.create("t", retention_ms="5", segment_ms="6")
    await incremented(asker, "t", ("retention.ms", ConfigOperation.SET, "7"))
    assert asker.topic("t").configs == {"retention.ms": "7", "segment.ms": "6"}


@pytest.mark.parametrize("version", range(3))
async def test_a_plain_change_replaces_them_all(asker: Asker, version: int) -> None:
    await asker.create("t", retention_ms="5", segment_ms="6")
    assert (await altered(asker, "t", {"retention.ms": "7"}, version)).error_code == 0
    assert asker.topic("t").configs == {"retention.ms": "7"}


async def test_append_and_subtract_are_for_lists(asker: Asker) -> None:
    await asker.create("t")
    same = ("cleanup.policy", ConfigOperation.APPEND, "delete")
    assert (await incremented(asker, "t", same)).error_code == 0
    for wrong in (
        ("cleanup.policy", ConfigOperation.APPEND, "compacted"),
        ("retention.ms", ConfigOperation.APPEND, "1"),
    ):
        assert (await incremented(asker, "t", wrong)).error_code == ErrorCode.INVALID_CONFIG
    for operation, kept in ((ConfigOperation.SUBTRACT, ""), (ConfigOperation.APPEND, "delete")):
        assert (await incremented(asker, "t", ("cleanup.policy", operation, "delete"))).error_code == 0
        assert asker.topic("t").configs == {"cleanup.policy": kept}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("no.such.setting", "1"),
        ("retention.ms", None),
    ],
)
async def test_a_value_that_cannot_hold_is_an_invalid_config_with_a_reason(
    asker: Asker, name: str, value: str | None
) -> None:
    await asker.create("t")
    answer = await incremented(asker, "t", (name, ConfigOperation.SET, value))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert name in answer.error_message
    assert asker.topic("t").configs == {}


async def test_validate_only_changes_nothing(asker: Asker) -> None:
    await asker.create("t")
    change = ("retention.ms", ConfigOperation.SET, "1")
    assert (await incremented(asker, "t", change, validate_only=True)).error_code == 0
    assert asker.topic("t").configs == {}


async def broker_changed(asker: Asker, name: str, **configs: str | None) -> Any:
    """Set these of a broker, or delete those that are None."""
    changes = [
        {"name": key.replace("_", "."), "config_operation": int(value is None), "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": name, "configs": changes}
    answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    return answer.responses[0]


async def test_a_brokers_changed_settings_hold_at_once_and_after_a_restart(open_asker: Open) -> None:
    asker = await open_asker()
    await asker.create("t")
    await asker.create("own", max_message_bytes="1000")
    assert (await broker_changed(asker, "1", message_max_bytes="200")).error_code == 0
    assert (await broker_changed(asker, "", num_partitions="3", group_max_size="2")).error_code == 0
    for _ in range(2):
        assert (await asker.produce("t", make_batch(b"x" * 500))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await asker.produce("own", make_batch(b"x" * 500))).error_code == 0
        assert asker.services.config.group_max_size == 2
        await asker.services.close()
        asker = await open_asker()
    await asker.create("made", -1)
    assert len(asker.topic("made").partitions) == 3
    assert (await broker_changed(asker, "1", message_max_bytes=None)).error_code == 0
    assert (await asker.produce("t", make_batch(b"x" * 500))).error_code == 0


async def test_the_value_of_a_broker_counts_before_that_of_all_before_that_of_the_start(
    open_asker: Open,
) -> None:
    asker = await open_asker(log_retention_ms=111)
    await asker.create("t", retention_ms="444")
    await asker.create("plain")
    await broker_changed(asker, "", log_retention_ms="222")
    await broker_changed(asker, "1", log_retention_ms="333")
    chain = [
        ("log.retention.ms", "333", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "222", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", "111", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    own = [("retention.ms", "444", ConfigSource.DYNAMIC_TOPIC_CONFIG)]
    for kind, name, key, expected in (
        (BROKER_RESOURCE, "1", "log.retention.ms", chain),
        (BROKER_RESOURCE, "", "log.retention.ms", chain[1:2]),
        (TOPIC_RESOURCE, "plain", "retention.ms", chain),
        (TOPIC_RESOURCE, "t", "retention.ms", own + chain),
    ):
        answer = await described(asker, kind, name, keys=[key], include_synonyms=True)
        (config,) = answer.configs
        assert [(held.name, held.value, held.source) for held in config.synonyms] == expected
        assert (config.value, config.config_source, config.read_only) == (*expected[0][1:], False)
    in_force = []
    for deleted in ("1", "", "1"):
        in_force.append(asker.replica("plain").log.config.retention_ms)
        await broker_changed(asker, deleted, log_retention_ms=None)
    assert in_force == [333, 222, 111]
    assert asker.replica("t").log.config.retention_ms == 444
    assert asker.services.catalog.broker_configs == {}


@pytest.mark.parametrize(
    ("name", "configs", "code", "reason"),
    [
        ("1", {"node_id": "2"}, ErrorCode.INVALID_REQUEST, "dynamically: node.id"),
        ("", {"data_dir": "/"}, ErrorCode.INVALID_REQUEST, "dynamically: data.dir"),
        ("1", {"num_partitions": "0"}, ErrorCode.INVALID_CONFIG, "whole number from 1"),
        ("1", {"num_partitions": ""}, ErrorCode.INVALID_CONFIG, "whole number from 1"),
        ("1", {"num_partition": "1"}, ErrorCode.INVALID_CONFIG, "num.partition"),
        ("1", {"log_cleaner_min_compaction_lag_ms": str(2**63 - 1)}, ErrorCode.NONE, None),
        ("2", {"num_partitions": "1"}, ErrorCode.INVALID_REQUEST, "expected 1 or empty string"),
    ],
)
async def test_what_cannot_change_at_run_time_is_refused_with_a_reason(
    asker: Asker, name: str, configs: dict[str, str], code: ErrorCode, reason: str | None
) -> None:
    before = asker.services.config
    answer = await broker_changed(asker, name, **configs)
    assert answer.error_code == code
    if reason is not None:
        assert reason in answer.error_message
        assert (asker.services.config, asker.services.catalog.broker_configs) == (before, {})


async def test_settings_that_contradict_each_other_are_refused(asker: Asker) -> None:
    await broker_changed(asker, "", log_cleaner_max_compaction_lag_ms="5")
    answer = await broker_changed(asker, "1", log_cleaner_min_compaction_lag_ms="6")
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "max.compaction.lag.ms" in answer.error_message


async def test_a_plain_change_of_a_broker_replaces_what_was_changed(asker: Asker) -> None:
    await broker_changed(asker, "1", num_partitions="3", group_max_size="2")
    configs = [{"name": "max.connections", "value": "7"}]
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": configs}
    for validate_only, kept in (
        (True, {"num.partitions": "3", "group.max.size": "2"}),
        (False, {"max.connections": "7"}),
    ):
        answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=validate_only)
        assert answer.responses[0].error_code == 0
        assert asker.services.catalog.broker_configs == {"1": kept}
    assert (asker.services.config.max_connections, asker.services.config.num_partitions) == (7, 1)


async def test_a_throttle_is_deleted_together_with_the_rate_that_only_kafka_has(asker: Asker) -> None:
    """As `kafka-reassign-partitions.sh --verify` and `--cancel` do."""
    rates = ("leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")
    assert (await broker_changed(asker, "1", **{rates[0]: "5"})).error_code == 0
    assert (await broker_changed(asker, "1", **dict.fromkeys(rates))).error_code == 0
    assert not asker.services.catalog.broker_configs.get("1")


async def test_a_type_of_resource_without_settings_is_refused(asker: Asker) -> None:
    unknown = 99
    assert (await described(asker, unknown, "1")).error_code == ErrorCode.INVALID_REQUEST
    resource = {"resource_type": unknown, "resource_name": "1", "configs": []}
    answer = await asker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert "expected a topic, a broker, its loggers" in answer.responses[0].error_message


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
