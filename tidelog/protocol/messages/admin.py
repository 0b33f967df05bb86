"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct, field


class DescribeConfigsRequestResource(Struct):
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsRequest(Struct, flexible="4+"):
    resources: list[DescribeConfigsRequestResource]
    include_synonyms: bool = field("1+", default=False)
    include_documentation: bool = field("3+", default=False)


class DescribeConfigsResponseSynonym(Struct):
    name: str = field("1+")
    value: str | None = field("1+", nullable="0+")
    source: Int8 = field("1+")


class DescribeConfigsResponseConfig(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: bool
    synonyms: list[DescribeConfigsResponseSynonym] = field("1+", ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: str | None = field("3+", nullable="0+", ignorable=True)


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
    value: str | None


class AlterConfigsRequestResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: list[AlterConfigsRequestConfig]


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
    config_operation: Int8
    value: str | None


class IncrementalAlterConfigsRequestResource(Struct):
    resource_type: Int8
    resource_name: str
    configs: list[IncrementalAlterConfigsRequestConfig]


class IncrementalAlterConfigsRequest(Struct, flexible="1+"):
    resources: list[IncrementalAlterConfigsRequestResource]
    validate_only: bool  # Check the request, change nothing.


class IncrementalAlterConfigsResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32
    responses: list[AlteredConfigs]
