"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field


class DescribeConfigsRequestResource(Struct):
    resource_type: Int8  # 2: topic, 4: broker, 8: loggers, 16: client metrics, 32: group.
    resource_name: str  # Of a broker its id; empty: what holds for all brokers.
    configuration_keys: list[str] | None  # Null or empty: all settings.


class DescribeConfigsRequest(Struct, flexible="4+"):
    resources: list[DescribeConfigsRequestResource]
    include_synonyms: bool = field("1+", default=False)  # Whether to name all sources (KIP-226).
    include_documentation: bool = field("3+", default=False)  # Whether to explain each setting (KIP-569).


class DescribeConfigsResponseSynonym(Struct):
    name: str = field("1+")  # The setting's name in this source; a broker's may differ.
    value: str | None = field("1+", nullable="0+")  # Null: it is a secret, or not set.
    source: Int8 = field("1+")  # The numbers of config_source.


class DescribeConfigsResponseConfig(Struct):
    name: str
    value: str | None  # Null: it is a secret, or not set.
    read_only: bool  # Whether no request can change it.
    # 1: topic, 2: this broker, 3: all brokers, 4: its start, 5: default, 6: logger, 7: metrics, 8: group.
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: bool  # Whether the value is a secret, which is never sent.
    synonyms: list[DescribeConfigsResponseSynonym] = field("1+", ignorable=True)  # In order of precedence.
    # 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class, 9: password.
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: str | None = field("3+", nullable="0+", ignorable=True)  # Null: not asked for.


class DescribeConfigsResponseResult(Struct):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResponseConfig]


class DescribeConfigsResponse(Struct, flexible="4+"):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResponseResult]


class AlterConfigsRequestConfig(Struct):
    name: str
    value: str | None  # Null is refused: what is not named is reset.


class AlterConfigsRequestResource(Struct):
    resource_type: Int8  # 2: topic, 4: broker, 16: client metrics, 32: group.
    resource_name: str  # Of a broker its id; empty: what holds for all brokers.
    configs: list[AlterConfigsRequestConfig]  # They replace all that the resource has of its own.


class AlterConfigsRequest(Struct, flexible="2+"):
    resources: list[AlterConfigsRequestResource]
    validate_only: bool  # Check the request, change nothing.


class AlteredConfigs(Struct):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(Struct, flexible="2+"):
    throttle_time_ms: Int32
    responses: list[AlteredConfigs]


class IncrementalAlterConfigsRequestConfig(Struct):
    name: str
    config_operation: Int8  # 0: set, 1: delete, 2: append to a list, 3: subtract from a list.
    value: str | None  # Of a list, elements with commas between them; ignored by delete.


class IncrementalAlterConfigsRequestResource(Struct):
    resource_type: Int8  # 2: topic, 4: broker, 8: loggers, 16: client metrics, 32: group.
    resource_name: str  # Of a broker its id; empty: what holds for all brokers.
    configs: list[IncrementalAlterConfigsRequestConfig]  # What is not named stays as it is.


class IncrementalAlterConfigsRequest(Struct, flexible="1+"):
    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: bool  # Check the request, change nothing.


class IncrementalAlterConfigsResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32
    responses: list[AlteredConfigs]
