"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and of this broker.

Owns the three answers. A changed setting of a topic applies to its running logs at once. One of the broker,
if it may change at all (`broker_settings`), applies to what the broker does from then on.

Invariants: each resource succeeds or fails alone; a change that names a resource twice is INVALID_REQUEST for
it, a description that names one twice describes it once; validate_only checks everything and changes nothing.

Versions: DescribeConfigs has types and documentation from 3 on. Source: KIP-133, KIP-226, KIP-339, KIP-569,
KIP-714, KIP-848; Kafka's ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TypeVar

from tidelog.broker.cluster.catalog import ALL_BROKERS, check_topic_name
from tidelog.broker.configuration.broker_settings import (
    BROKER_SETTINGS,
    ConfigSource,
    DescribedSetting,
    Synonym,
)
from tidelog.broker.configuration.resource_settings import CLIENT_METRICS, GROUPS, KINDS
from tidelog.broker.configuration.settings import did_you_mean
from tidelog.broker.configuration.topic_settings import (
    TOPIC_SETTINGS,
    ConfigType,
    check_number_of_settings,
    config_type,
)
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.observability import log_events
from tidelog.broker.replicas.topics import ConfigChange
from tidelog.broker.security import required_access
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.settings import Setting
from tidelog.protocol.steps import Pace, Steps, each

STEP_COST_DESCRIPTION = 10
"""Describing one topic's settings counts as this many elements (see `protocol.steps`)."""
STEP_COST_CHANGE = 5
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LOGGERS_RESOURCE = 8
_Rights = tuple[required_access.Right, required_access.Right]
_OF_CLUSTER: _Rights = (required_access.DESCRIBE_CLUSTER_CONFIGS, required_access.ALTER_CLUSTER_CONFIGS)
_RIGHTS: Mapping[int, _Rights] = {
    TOPIC_RESOURCE: (required_access.DESCRIBE_TOPIC_CONFIGS, required_access.ALTER_TOPIC_CONFIGS),
    BROKER_RESOURCE: _OF_CLUSTER,
    LOGGERS_RESOURCE: _OF_CLUSTER,
    CLIENT_METRICS.number: _OF_CLUSTER,
    GROUPS.number: (required_access.DESCRIBE_GROUP_CONFIGS, required_access.ALTER_GROUP_CONFIGS),
}
"""Type of a resource -> the rights to describe and to change its settings."""
_RATE_BETWEEN_FOLDERS = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Kafka's tool deletes it with the other throttles of a reassignment. A broker here has one data folder."""
_ResourceT = TypeVar(
    "_ResourceT", "types.AlterConfigsRequestResource", "types.IncrementalAlterConfigsRequestResource"
)


_LEVEL = Setting("level", str, None, "Lowest level of the logged events: INFO, WARN or ERROR.")
"""What each logger has."""


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigsHandler(GuardedHandler):
    """Serves DescribeConfigs 1-4, AlterConfigs 0-2 and IncrementalAlterConfigs 0-1."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._topics = services.topics

    def describe_configs(
        self, context: RequestContext, request: types.DescribeConfigsRequest
    ) -> Steps[DictOf[types.DescribeConfigsResponse]]:
        pace = Pace()
        asked = yield from _asked_for(request.resources, pace)
        describe = partial(self._describe, context, request)
        return {"results": (yield from each(describe, asked.items(), pace, STEP_COST_DESCRIPTION))}

    def _describe(
        self,
        context: RequestContext,
        request: types.DescribeConfigsRequest,
        asked: tuple[tuple[int, str], set[str]],
    ) -> DictOf[types.DescribeConfigsResponseResult]:
        (resource_type, name), keys = asked
        answer: DictOf[types.DescribeConfigsResponseResult] = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "resource_type": resource_type,
            "resource_name": name,
        }
        try:
            self._check_access(context, resource_type, name, to_change=False)
            described = self._settings_of(resource_type, name)
        except ApiError as error:
            answer["error_code"] = error.code
            answer["error_message"] = error.message
            return answer
        answer["configs"] = [
            _config(setting, request) for setting in described if not keys or setting.name in keys
        ]
        return answer

    def _settings_of(self, resource_type: int, name: str) -> Sequence[DescribedSetting]:
        if resource_type == TOPIC_RESOURCE:
            check_topic_name(name)
            topic = self._services.catalog.topic(name)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self._topics.settings.describe(topic.configs)
        if resource_type == BROKER_RESOURCE:
            if name == ALL_BROKERS:
                return self._services.settings.describe_of_all()
            self._check_broker(name)
            return self._services.settings.describe()
        if resource_type == LOGGERS_RESOURCE:
            self._check_broker(name)
            return [_described_logger(each) for each in log_events.loggers()]
        kind = KINDS[resource_type]
        own = self._services.catalog.broker_configs.get(kind.key(name), {})
        return kind.describe(own, self._services.settings)

    def _check_access(
        self, context: RequestContext, resource_type: int, name: str, *, to_change: bool
    ) -> None:
        """Raise ApiError for a type of resource without settings, and without the right."""
        rights = _RIGHTS.get(resource_type)
        if rights is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "expected a topic, a broker, its loggers, a group or client metrics, got resource type "
                f"{resource_type}",
            )
        right = rights[to_change]
        self._access.check(context, right, CLUSTER_NAME if rights is _OF_CLUSTER else name)

    def _check_broker(self, name: str) -> None:
        if name != str(self._services.node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._services.node_id} or empty string, "
                f"but received {name}",
            )

    async def alter_configs(
        self, context: RequestContext, request: types.AlterConfigsRequest
    ) -> DictOf[types.AlterConfigsResponse]:
        def replacement(resource: types.AlterConfigsRequestResource) -> ConfigChange:
            if resource.resource_type == LOGGERS_RESOURCE:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "AlterConfigs does not support levels of loggers: use IncrementalAlterConfigs",
                )
            configs = {config.name: config.value for config in resource.configs}
            return lambda present: configs

        return await self._alter(context, request.resources, replacement, validate_only=request.validate_only)

    async def incremental_alter_configs(
        self, context: RequestContext, request: types.IncrementalAlterConfigsRequest
    ) -> DictOf[types.IncrementalAlterConfigsResponse]:
        def increment(resource: types.IncrementalAlterConfigsRequestResource) -> ConfigChange:
            known, unknown = _known(resource.resource_type)
            return lambda present: _incremented(present, resource.configs, known, unknown)

        return await self._alter(context, request.resources, increment, validate_only=request.validate_only)

    async def _alter(
        self,
        context: RequestContext,
        resources: Sequence[_ResourceT],
        change_of: Callable[[_ResourceT], ConfigChange],
        *,
        validate_only: bool,
    ) -> DictOf[types.AlterConfigsResponse]:
        turns, pace = self._services.turns, Pace()
        times: Counter[tuple[int, str]] = Counter()
        by_key: dict[tuple[int, str], _ResourceT] = {}
        for resource in resources:
            key = (resource.resource_type, resource.resource_name)
            times[key] += 1
            by_key[key] = resource
            if pace.spent():
                await turns.next()

        async def alter(keyed: tuple[tuple[int, str], _ResourceT]) -> DictOf[types.AlteredConfigs]:
            key, resource = keyed
            code, message = ErrorCode.NONE, None
            try:
                if times[key] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                await self._alter_one(context, resource, change_of, validate_only=validate_only)
            except ApiError as error:
                code, message = error.code, error.message
            return {
                "error_code": code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }

        return {"responses": await turns.together(alter, by_key.items(), pace, STEP_COST_CHANGE)}

    async def _alter_one(
        self,
        context: RequestContext,
        resource: _ResourceT,
        change_of: Callable[[_ResourceT], ConfigChange],
        *,
        validate_only: bool,
    ) -> None:
        resource_type, name = resource.resource_type, resource.resource_name
        self._check_access(context, resource_type, name, to_change=True)
        _check_keys(resource.configs, _known(resource_type)[0])
        if resource_type == TOPIC_RESOURCE:
            check_topic_name(name)
            apply = self._topics.change_configs
        elif resource_type == BROKER_RESOURCE:
            if name != ALL_BROKERS:
                self._check_broker(name)
            apply = self._topics.change_broker_configs
        elif resource_type == LOGGERS_RESOURCE:
            self._check_broker(name)
            apply = _change_levels
        else:
            apply = partial(self._topics.change_resource_configs, KINDS[resource_type])
        await apply(name, change_of(resource), validate_only=validate_only)


async def _change_levels(name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
    """Levels hold in this process until it ends, as in Kafka. Raises ApiError: INVALID_CONFIG for an unknown
    level, INVALID_REQUEST if the root logger would have none."""
    before = log_events.own_levels()
    after = change(before)
    if log_events.ROOT not in after:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed: set one"
        )
    for logger, level in after.items():
        if level not in log_events.LEVELS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {logger} to {level}: expected {', '.join(log_events.LEVELS)}",
            )
    if not validate_only:
        for logger in before.keys() - after.keys():
            log_events.unset_level(logger)
        for logger, level in after.items():
            log_events.set_level(str(level), logger)


def _described_logger(logger: str) -> DescribedSetting:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    synonym = Synonym(logger, log_events.level_of(logger), source, is_listed=False)
    return DescribedSetting(logger, (synonym,), config_type(_LEVEL), _LEVEL.description)


def _known(resource_type: int) -> tuple[Mapping[str, Setting], ErrorCode]:
    """The settings of a type of resource, and the code with which another one is refused."""
    if kind := KINDS.get(resource_type):
        return kind.settings, kind.unknown
    if resource_type == LOGGERS_RESOURCE:
        return dict.fromkeys(log_events.loggers(), _LEVEL), ErrorCode.INVALID_CONFIG
    return (BROKER_SETTINGS if resource_type == BROKER_RESOURCE else TOPIC_SETTINGS), ErrorCode.INVALID_CONFIG


def _check_keys(
    configs: Sequence[types.AlterConfigsRequestConfig | types.IncrementalAlterConfigsRequestConfig],
    known: Mapping[str, Setting],
) -> None:
    """Raise ApiError(INVALID_CONFIG) for more settings than exist, and for one named twice."""
    check_number_of_settings(len(configs), len(known))
    if len({config.name for config in configs}) != len(configs):
        raise ApiError(ErrorCode.INVALID_CONFIG, "Error due to duplicate config keys")


def _asked_for(
    resources: Sequence[types.DescribeConfigsRequestResource], pace: Pace
) -> Steps[dict[tuple[int, str], set[str]]]:
    """(type, name) -> the settings asked for, wherever the resource is named; an empty set means all."""
    asked: dict[tuple[int, str], set[str]] = {}
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        settings = set(resource.configuration_keys or ())
        known = asked.setdefault(key, settings)
        if known and settings:
            known |= settings
        else:
            known.clear()
        if pace.spent():
            yield
    return asked


def _incremented(
    present: Mapping[str, str],
    operations: Sequence[types.IncrementalAlterConfigsRequestConfig],
    known: Mapping[str, Setting],
    unknown: ErrorCode,
) -> dict[str, str | None]:
    """The resource's own settings after SET, DELETE, APPEND and SUBTRACT. Raises ApiError: `unknown` for a
    setting that is not `known`, INVALID_CONFIG."""
    configs: dict[str, str | None] = dict(present)
    for asked in operations:
        setting = known.get(asked.name)
        if asked.config_operation == ConfigOperation.DELETE and (
            setting or asked.name in configs or asked.name == _RATE_BETWEEN_FOLDERS
        ):
            configs.pop(asked.name, None)
            continue
        if setting is None:
            hint = did_you_mean(asked.name, known)
            raise ApiError(unknown, f"Unknown config name: {asked.name}{hint}")
        if asked.config_operation == ConfigOperation.SET:
            configs[asked.name] = asked.value
        elif asked.config_operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            if config_type(setting) != ConfigType.LIST:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"Config value append or subtract is not allowed for config key: {asked.name}",
                )
            own = configs.get(asked.name)
            values = list(setting.default) if own is None else [each for each in own.split(",") if each]
            given = [each.strip() for each in (asked.value or "").split(",")]
            if asked.config_operation == ConfigOperation.APPEND:
                values += [value for value in given if value not in values]
            else:
                values = [value for value in values if value not in given]
            configs[asked.name] = ",".join(values)
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown config operation {asked.config_operation} on {asked.name}",
            )
    return configs


def _config(
    setting: DescribedSetting, request: types.DescribeConfigsRequest
) -> DictOf[types.DescribeConfigsResponseConfig]:
    config: DictOf[types.DescribeConfigsResponseConfig] = {
        "name": setting.name,
        "value": setting.value,
        "read_only": setting.is_read_only,
        "config_source": setting.source,
        "is_sensitive": setting.is_secret,
        "config_type": setting.type,
    }
    if request.include_synonyms:
        config["synonyms"] = [
            {"name": name, "value": value, "source": source}
            for name, value, source, is_listed in setting.synonyms
            if is_listed
        ]
    # The field is nullable, and null is sent when the client did not ask for it.
    config["documentation"] = setting.documentation if request.include_documentation else None
    return config
