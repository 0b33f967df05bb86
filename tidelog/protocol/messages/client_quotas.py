"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Declarations only. Source: the JSON definitions of the same names (KIP-546), whose field "values" is "quotas"
here, because decoded structs have a method of that name.
"""

from tidelog.protocol.messages.declaration import Int8, Int16, Int32, Struct


class DescribeClientQuotasRequestComponent(Struct):
    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasRequest(Struct, flexible="1+"):
    components: list[DescribeClientQuotasRequestComponent]
    strict: bool


class QuotaEntity(Struct):
    entity_type: str
    entity_name: str | None


class DescribeClientQuotasResponseQuota(Struct):
    key: str
    value: float


class DescribeClientQuotasResponseEntry(Struct):
    entity: list[QuotaEntity]
    quotas: list[DescribeClientQuotasResponseQuota]


class DescribeClientQuotasResponse(Struct, flexible="1+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    entries: list[DescribeClientQuotasResponseEntry] | None


class AlterClientQuotasRequestOp(Struct):
    key: str
    value: float
    remove: bool


class AlterClientQuotasRequestEntry(Struct):
    entity: list[QuotaEntity]
    ops: list[AlterClientQuotasRequestOp]


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
