"""Settings of topics and brokers: described with their story, changed at once, refused with a reason."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.configuration.topic_configs import ConfigSource
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


async def test_the_brokers_settings_are_read_only(open_asker: Open) -> None:
    asker = await open_asker(num_partitions=7)
    answer = await described(asker, BROKER_RESOURCE, "1", include_synonyms=True)
    configs = {config.name: config for config in answer.configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("7", True)
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
    held = asker.services.catalog.topic("t")
    assert held is not None
    assert held.configs == {"retention.ms": "7", "segment.ms": "6"}


@pytest.mark.parametrize("version", range(3))
async def test_a_plain_change_replaces_them_all(asker: Asker, version: int) -> None:
    await asker.create("t", retention_ms="5", segment_ms="6")
    assert (await altered(asker, "t", {"retention.ms": "7"}, version)).error_code == 0
    held = asker.services.catalog.topic("t")
    assert held is not None
    assert held.configs == {"retention.ms": "7"}


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
        held = asker.services.catalog.topic("t")
        assert held is not None
        assert held.configs == {"cleanup.policy": kept}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("min.insync.replicas", "0"),
        ("compression.type", "zstd"),
        ("message.timestamp.type", "createtime"),
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
    held = asker.services.catalog.topic("t")
    assert held is not None
    assert held.configs == {}


async def test_validate_only_changes_nothing(asker: Asker) -> None:
    await asker.create("t")
    change = ("retention.ms", ConfigOperation.SET, "1")
    assert (await incremented(asker, "t", change, validate_only=True)).error_code == 0
    held = asker.services.catalog.topic("t")
    assert held is not None
    assert held.configs == {}


async def test_broker_settings_cannot_be_changed(asker: Asker) -> None:
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": []}
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_resource_named_twice_is_an_invalid_request(asker: Asker) -> None:
    await asker.create("t")
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "t", "configs": []}
    answer = await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource, resource])
    assert [held.error_code for held in answer.responses] == [ErrorCode.INVALID_REQUEST]
