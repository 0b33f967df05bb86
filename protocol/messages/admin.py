"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

ALTER_CONFIGS_RESOURCE_RESPONSE = (
    *ERROR,
    Field("resource_type", "int8", "0+"),
    Field("resource_name", "string", "0+"),
)

DESCRIBE_CONFIGS_REQUEST = message(
    "DescribeConfigsRequest",
    "4+",
    structs(
        "resources",
        "0+",
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        Field("configuration_keys", "[]string", "0+", nullable="0+"),
    ),
    Field("include_synonyms", "bool", "1+", default=False),
    Field("include_documentation", "bool", "3+", default=False),
)

DESCRIBE_CONFIGS_RESPONSE = message(
    "DescribeConfigsResponse",
    "4+",
    Field("throttle_time_ms", "int32", "0+"),
    structs(
        "results",
        "0+",
        *ERROR,
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        structs(
            "configs",
            "0+",
            Field("name", "string", "0+"),
            Field("value", "string", "0+", nullable="0+"),
            Field("read_only", "bool", "0+"),
            Field("config_source", "int8", "1+", default=-1, ignorable=True),
            Field("is_sensitive", "bool", "0+"),
            structs(
                "synonyms",
                "1+",
                Field("name", "string", "1+"),
                Field("value", "string", "1+", nullable="0+"),
                Field("source", "int8", "1+"),
                ignorable=True,
            ),
            Field("config_type", "int8", "3+", default=0, ignorable=True),
            Field("documentation", "string", "3+", nullable="0+", ignorable=True),
        ),
    ),
)

ALTER_CONFIGS_REQUEST = message(
    "AlterConfigsRequest",
    "2+",
    structs(
        "resources",
        "0+",
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        structs(
            "configs", "0+", Field("name", "string", "0+"), Field("value", "string", "0+", nullable="0+")
        ),
    ),
    Field("validate_only", "bool", "0+"),
)

ALTER_CONFIGS_RESPONSE = message(
    "AlterConfigsResponse",
    "2+",
    Field("throttle_time_ms", "int32", "0+"),
    structs("responses", "0+", *ALTER_CONFIGS_RESOURCE_RESPONSE),
)

INCREMENTAL_ALTER_CONFIGS_REQUEST = message(
    "IncrementalAlterConfigsRequest",
    "1+",
    structs(
        "resources",
        "0+",
        Field("resource_type", "int8", "0+"),
        Field("resource_name", "string", "0+"),
        structs(
            "configs",
            "0+",
            Field("name", "string", "0+"),
            Field("config_operation", "int8", "0+"),
            Field("value", "string", "0+", nullable="0+"),
        ),
    ),
    Field("validate_only", "bool", "0+"),
)

INCREMENTAL_ALTER_CONFIGS_RESPONSE = message(
    "IncrementalAlterConfigsResponse",
    "1+",
    Field("throttle_time_ms", "int32", "0+"),
    structs("responses", "0+", *ALTER_CONFIGS_RESOURCE_RESPONSE),
)
