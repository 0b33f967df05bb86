"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Declarations only. Source: the JSON definitions of the same names (KIP-546), whose field "values" is "quotas"
here, because decoded structs have a method of that name.
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct


class DescribeClientQuotasRequestComponent(Struct):
    entity_type: str  # user, client-id or ip.
    match_type: Int8  # 0: exactly the name in `match`, 1: the default entity, 2: any entity.
    match: str | None  # Null unless match_type is 0.


class DescribeClientQuotasRequest(Struct, flexible="1+"):
    components: list[DescribeClientQuotasRequestComponent]  # Each entity type once at most; empty: any.
    strict: bool  # Whether to leave out entities that have other types too.


class QuotaEntity(Struct):
    entity_type: str  # user, client-id or ip.
    entity_name: str | None  # Null: the default, for all without a quota of their own.


class DescribeClientQuotasResponseQuota(Struct):
    key: str  # For example producer_byte_rate; `protocol.quotas` has all.
    value: float  # Bytes, changes or connections per second, or percent, as the key says.


class DescribeClientQuotasResponseEntry(Struct):
    entity: list[QuotaEntity]  # A user, a client id, both of them, or an address.
    quotas: list[DescribeClientQuotasResponseQuota]


class DescribeClientQuotasResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    entries: list[DescribeClientQuotasResponseEntry] | None  # Null: the request failed.


class AlterClientQuotasRequestOp(Struct):
    key: str  # For example producer_byte_rate; `protocol.quotas` has all.
    value: float  # Ignored if `remove` is true.
    remove: bool  # Whether to delete the quota instead of setting it.


class AlterClientQuotasRequestEntry(Struct):
    entity: list[QuotaEntity]  # A user, a client id, both of them, or an address.
    ops: list[AlterClientQuotasRequestOp]  # Quotas without one stay as they are.


class AlterClientQuotasRequest(Struct, flexible="1+"):
    entries: list[AlterClientQuotasRequestEntry]
    validate_only: bool  # Check the request, change nothing.


class AlterClientQuotasResponseEntry(Struct):
    error_code: Int16
    error_message: str | None
    entity: list[QuotaEntity]


class AlterClientQuotasResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32
    entries: list[AlterClientQuotasResponseEntry]
