"""Settings of groups and of client metrics: described, changed, refused, and kept over a restart."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker
from tidelog.broker.configuration.broker_settings import ConfigSource
from tidelog.broker.configuration.resource_settings import CLIENT_METRICS, GROUPS
from tidelog.broker.observability import log_events
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]
SET, DELETE, APPEND = 0, 1, 2
SESSION = "consumer.session.timeout.ms"


async def described(asker: Asker, number: int, name: str) -> dict[str, tuple[str, int]]:
    """Setting -> its value and where it comes from."""
    resource = {"resource_type": number, "resource_name": name, "configuration_keys": None}
    answer = await asker.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)
    [result] = answer.results
    assert result.error_code == ErrorCode.NONE
    return {each.name: (each.value, each.config_source) for each in result.configs}


async def changed(asker: Asker, number: int, name: str, *changes: Any, validate_only: bool = False) -> Any:
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": number, "resource_name": name, "configs": configs}
    answer = await asker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
    )
    return answer.responses[0]


async def test_a_group_has_the_broker_s_values_until_it_has_its_own(open_asker: Open) -> None:
    asker = await open_asker(group_consumer_session_timeout_ms=46_000)
    before = await described(asker, GROUPS.number, "billing")
    assert before[SESSION] == ("46000", ConfigSource.STATIC_BROKER_CONFIG)
    assert (await changed(asker, 32, "billing", (SESSION, SET, "50000"))).error_code == ErrorCode.NONE
    after = await described(asker, GROUPS.number, "billing")
    assert after[SESSION] == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert (await described(asker, GROUPS.number, "other"))[SESSION] == before[SESSION]
    assert (await changed(asker, 32, "billing", (SESSION, DELETE, None))).error_code == ErrorCode.NONE
    assert asker.services.catalog.broker_configs == {}


async def test_client_metrics_have_defaults_and_lists(open_asker: Open) -> None:
    asker = await open_asker()
    assert await described(asker, CLIENT_METRICS.number, "all") == {
        "metrics": ("", ConfigSource.DEFAULT_CONFIG),
        "interval.ms": ("300000", ConfigSource.DEFAULT_CONFIG),
        "match": ("", ConfigSource.DEFAULT_CONFIG),
    }
    await changed(
        asker, 16, "all", ("metrics", SET, "a."), ("match", SET, "client_id=x.*, client_source_port=1")
    )
    await changed(asker, 16, "all", ("metrics", APPEND, "b."))
    after = await described(asker, CLIENT_METRICS.number, "all")
    assert after["metrics"] == ("a.,b.", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
    assert after["match"][0] == "client_id=x.*,client_source_port=1"


@pytest.mark.parametrize(
    ("number", "name", "setting", "value", "code", "reason"),
    [
        (
            32,
            "g",
            SESSION,
            "1",
            ErrorCode.INVALID_CONFIG,
            "greater than or equal to group.consumer.min",
        ),
        (
            32,
            "g",
            SESSION,
            "70000",
            ErrorCode.INVALID_CONFIG,
            "less than or equal to group.consumer.max",
        ),
        (32, "g", SESSION, "soon", ErrorCode.INVALID_CONFIG, "a whole number"),
        (32, "g", SESSION, None, ErrorCode.INVALID_CONFIG, "Null value"),
        (32, "g", "consumer.sesion.timeout.ms", "1", ErrorCode.INVALID_CONFIG, f"did you mean {SESSION}"),
        (32, "", SESSION, "50000", ErrorCode.INVALID_REQUEST, "a name of 1 to"),
        (16, "", "interval.ms", "100", ErrorCode.INVALID_REQUEST, "a name of 1 to"),
        (16, "m", "interval.ms", "99", ErrorCode.INVALID_REQUEST, "from 100 to 3600000"),
        (16, "m", "match", "client_name=x", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        (16, "m", "match", "client_id=(", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        (16, "m", "match", "client_id", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        (16, "m", "match", f"client_id={'a' * 1001}", ErrorCode.INVALID_CONFIG, "at most 1000 characters"),
        (16, "m", "frequency", "1", ErrorCode.INVALID_REQUEST, "Unknown"),
    ],
)
async def test_what_is_wrong_is_refused_with_kafka_s_code(
    open_asker: Open, number: int, name: str, setting: str, value: str | None, code: ErrorCode, reason: str
) -> None:
    asker = await open_asker()
    answer = await changed(asker, number, name, (setting, SET, value))
    assert answer.error_code == code
    assert reason in answer.error_message
    assert asker.services.catalog.broker_configs == {}


async def test_a_session_must_be_longer_than_the_interval_of_its_heartbeats(open_asker: Open) -> None:
    asker = await open_asker(
        group_consumer_min_session_timeout_ms=5_000, group_consumer_max_heartbeat_interval_ms=60_000
    )
    both = (SESSION, SET, "10000"), ("consumer.heartbeat.interval.ms", SET, "10000")
    answer = await changed(asker, 32, "g", *both)
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "must be greater than consumer.heartbeat.interval.ms" in answer.error_message


async def test_validation_changes_nothing(open_asker: Open) -> None:
    asker = await open_asker()
    answer = await changed(asker, 16, "all", ("interval.ms", SET, "100"), validate_only=True)
    assert answer.error_code == ErrorCode.NONE
    assert asker.services.catalog.broker_configs == {}


async def test_they_are_kept_beside_the_settings_of_brokers(open_asker: Open) -> None:
    asker = await open_asker()
    await changed(asker, 16, "1", ("interval.ms", SET, "100"))
    await changed(asker, 4, "1", ("num.partitions", SET, "7"))
    await asker.services.close()
    again = await open_asker()
    assert (await described(again, CLIENT_METRICS.number, "1"))["interval.ms"][0] == "100"
    assert again.services.config.num_partitions == 7
    assert again.services.settings.changed("1").keys() == {"num.partitions"}


@pytest.fixture
def _levels() -> Iterator[None]:
    yield
    for logger in log_events.own_levels():
        log_events.unset_level(logger)
    log_events.set_level("INFO")


LOGGERS = 8
CLEANER, ABOVE = "tidelog.broker.replicas.log_cleaner", "tidelog.broker.replicas"


@pytest.mark.usefixtures("_levels")
async def test_levels_of_loggers_hold_for_those_below_them(open_asker: Open) -> None:
    asker = await open_asker()
    before = await described(asker, LOGGERS, "1")
    assert before.keys() >= {"root", "tidelog", ABOVE, CLEANER}
    assert set(before.values()) == {("INFO", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)}
    assert (await changed(asker, LOGGERS, "1", (ABOVE, SET, "ERROR"))).error_code == ErrorCode.NONE
    after = await described(asker, LOGGERS, "1")
    assert [after[each][0] for each in ("root", ABOVE, CLEANER)] == ["INFO", "ERROR", "ERROR"]
    await changed(asker, LOGGERS, "1", (CLEANER, SET, "WARN"), (ABOVE, DELETE, None), validate_only=True)
    assert await described(asker, LOGGERS, "1") == after
    await changed(asker, LOGGERS, "1", (CLEANER, SET, "WARN"), (ABOVE, DELETE, None))
    assert log_events.own_levels() == {"root": "INFO", CLEANER: "WARN"}


@pytest.mark.usefixtures("_levels")
@pytest.mark.parametrize(
    ("broker", "change", "code", "reason"),
    [
        ("1", ("root", SET, "TRACE"), ErrorCode.INVALID_CONFIG, "expected INFO, WARN, ERROR"),
        ("1", ("root", SET, None), ErrorCode.INVALID_CONFIG, "expected INFO, WARN, ERROR"),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST, "not allowed"),
        ("1", ("kafka.server", SET, "WARN"), ErrorCode.INVALID_CONFIG, "kafka.server"),
        ("2", ("root", SET, "WARN"), ErrorCode.INVALID_REQUEST, "expected 1"),
        ("", ("root", SET, "WARN"), ErrorCode.INVALID_REQUEST, "expected 1"),
    ],
)
async def test_another_level_logger_or_broker_is_refused(
    open_asker: Open, broker: str, change: tuple[str, int, str | None], code: ErrorCode, reason: str
) -> None:
    asker = await open_asker()
    answer = await changed(asker, LOGGERS, broker, change)
    assert answer.error_code == code
    assert reason in answer.error_message
    assert log_events.own_levels() == {"root": "INFO"}


async def test_all_levels_are_not_replaced_at_once(open_asker: Open) -> None:
    asker = await open_asker()
    resource = {
        "resource_type": LOGGERS,
        "resource_name": "1",
        "configs": [{"name": "root", "value": "WARN"}],
    }
    [answer] = (await asker.ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])).responses
    assert (answer.error_code, log_events.own_levels()) == (ErrorCode.INVALID_REQUEST, {"root": "INFO"})
