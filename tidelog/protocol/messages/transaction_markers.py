"""WriteTxnMarkers: a transaction coordinator ends transactions on the partitions that took part in them.

Declarations only. Source: the JSON definitions of the same names (KIP-98, KIP-1228 for TransactionVersion).
"""

from tidelog.protocol.messages.declaration import Field, message, structs

WRITE_TXN_MARKERS_REQUEST = message(
    "WriteTxnMarkersRequest",
    "1+",
    structs(
        "markers",
        Field("producer_id", "int64", "1+"),
        Field("producer_epoch", "int16", "1+"),
        Field("transaction_result", "bool", "1+"),
        structs(
            "topics",
            Field("name", "string", "1+"),
            Field("partition_indexes", "[]int32", "1+"),
            versions="1+",
        ),
        Field("coordinator_epoch", "int32", "1+"),
        Field("transaction_version", "int8", "2+", default=0, ignorable=True),
        versions="1+",
    ),
)

WRITE_TXN_MARKERS_RESPONSE = message(
    "WriteTxnMarkersResponse",
    "1+",
    structs(
        "markers",
        Field("producer_id", "int64", "1+"),
        structs(
            "topics",
            Field("name", "string", "1+"),
            structs(
                "partitions",
                Field("partition_index", "int32", "1+"),
                Field("error_code", "int16", "1+"),
                versions="1+",
            ),
            versions="1+",
        ),
        versions="1+",
    ),
)
