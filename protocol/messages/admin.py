"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers.

Declarations only. Source: the JSON definitions of the same names (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from tidelog.protocol.messages.declaration import Field, Message

ALTER_CONFIGS_RESOURCE_RESPONSE = (
    Field("error_code", "int16", "0+"),
    Field("error_message", "string", "0+", nullable="0+"),
    Field("resource_type", "int8", "0+"),
    Field("resource_name", "string", "0+"),
)

DESCRIBE_CONFIGS_REQUEST = Message(
    "DescribeConfigsRequest",
    flexible="4+",
    fields=(
        Field(
            "resources",
            "[]struct",
            "0+",
            fields=(
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field("configuration_keys", "[]string", "0+", nullable="0+"),
            ),
        ),
        Field("include_synonyms", "bool", "1+", default=False),
        Field("include_documentation", "bool", "3+", default=False),
    ),
)

DESCRIBE_CONFIGS_RESPONSE = Message(
    "DescribeConfigsResponse",
    flexible="4+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field(
            "results",
            "[]struct",
            "0+",
            fields=(
                Field("error_code", "int16", "0+"),
                Field("error_message", "string", "0+", nullable="0+"),
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field(
                    "configs",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("name", "string", "0+"),
                        Field("value", "string", "0+", nullable="0+"),
                        Field("read_only", "bool", "0+"),
                        Field("config_source", "int8", "1+", default=-1, ignorable=True),
                        Field("is_sensitive", "bool", "0+"),
                        Field(
                            "synonyms",
                            "[]struct",
                            "1+",
                            ignorable=True,
                            fields=(
                                Field("name", "string", "1+"),
                                Field("value", "string", "1+", nullable="0+"),
                                Field("source", "int8", "1+"),
                            ),
                        ),
                        Field("config_type", "int8", "3+", default=0, ignorable=True),
                        Field("documentation", "string", "3+", nullable="0+", ignorable=True),
                    ),
                ),
            ),
        ),
    ),
)

ALTER_CONFIGS_REQUEST = Message(
    "AlterConfigsRequest",
    flexible="2+",
    fields=(
        Field(
            "resources",
            "[]struct",
            "0+",
            fields=(
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field(
                    "configs",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("name", "string", "0+"),
                        Field("value", "string", "0+", nullable="0+"),
                    ),
                ),
            ),
        ),
        Field("validate_only", "bool", "0+"),
    ),
)

ALTER_CONFIGS_RESPONSE = Message(
    "AlterConfigsResponse",
    flexible="2+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("responses", "[]struct", "0+", fields=ALTER_CONFIGS_RESOURCE_RESPONSE),
    ),
)

INCREMENTAL_ALTER_CONFIGS_REQUEST = Message(
    "IncrementalAlterConfigsRequest",
    flexible="1+",
    fields=(
        Field(
            "resources",
            "[]struct",
            "0+",
            fields=(
                Field("resource_type", "int8", "0+"),
                Field("resource_name", "string", "0+"),
                Field(
                    "configs",
                    "[]struct",
                    "0+",
                    fields=(
                        Field("name", "string", "0+"),
                        Field("config_operation", "int8", "0+"),
                        Field("value", "string", "0+", nullable="0+"),
                    ),
                ),
            ),
        ),
        Field("validate_only", "bool", "0+"),
    ),
)

INCREMENTAL_ALTER_CONFIGS_RESPONSE = Message(
    "IncrementalAlterConfigsResponse",
    flexible="1+",
    fields=(
        Field("throttle_time_ms", "int32", "0+"),
        Field("responses", "[]struct", "0+", fields=ALTER_CONFIGS_RESOURCE_RESPONSE),
    ),
)
