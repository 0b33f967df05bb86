"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from tidelog.protocol.messages.declaration import ERROR, Field, message, structs

ALTER_CONFIGS_RESOURCE_RESPONSE = (*ERROR, Field("resource_type", "int8"), Field("resource_name", "string"))

DESCRIBE_CONFIGS_REQUEST = message(
    "DescribeConfigsRequest",
    "4+",
    structs(
        "resources",
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        Field("configuration_keys", "[]string", nullable="0+"),
    ),
    Field("include_synonyms", "bool", "1+", default=False),
    Field("include_documentation", "bool", "3+", default=False),
)

DESCRIBE_CONFIGS_RESPONSE = message(
    "DescribeConfigsResponse",
    "4+",
    Field("throttle_time_ms", "int32"),
    structs(
        "results",
        *ERROR,
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        structs(
            "configs",
            Field("name", "string"),
            Field("value", "string", nullable="0+"),
            Field("read_only", "bool"),
            Field("config_source", "int8", "1+", default=-1, ignorable=True),
            Field("is_sensitive", "bool"),
            structs(
                "synonyms",
                Field("name", "string", "1+"),
                Field("value", "string", "1+", nullable="0+"),
                Field("source", "int8", "1+"),
                ignorable=True,
                versions="1+",
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
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        structs("configs", Field("name", "string"), Field("value", "string", nullable="0+")),
    ),
    Field("validate_only", "bool"),
)

ALTER_CONFIGS_RESPONSE = message(
    "AlterConfigsResponse",
    "2+",
    Field("throttle_time_ms", "int32"),
    structs("responses", *ALTER_CONFIGS_RESOURCE_RESPONSE),
)

INCREMENTAL_ALTER_CONFIGS_REQUEST = message(
    "IncrementalAlterConfigsRequest",
    "1+",
    structs(
        "resources",
        Field("resource_type", "int8"),
        Field("resource_name", "string"),
        structs(
            "configs",
            Field("name", "string"),
            Field("config_operation", "int8"),
            Field("value", "string", nullable="0+"),
        ),
    ),
    Field("validate_only", "bool"),
)

INCREMENTAL_ALTER_CONFIGS_RESPONSE = message(
    "IncrementalAlterConfigsResponse",
    "1+",
    Field("throttle_time_ms", "int32"),
    structs("responses", *ALTER_CONFIGS_RESOURCE_RESPONSE),
)
