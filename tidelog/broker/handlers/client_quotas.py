"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Owns the two answers, and which entities a filter matches. Invariants: each entity succeeds or fails alone; an
answer comes once the change is durable; validate_only checks everything and changes nothing.

Source: KIP-546, KIP-612; Kafka's ClientQuotaControlManager and ClientQuotasImage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TypeAlias

from tidelog.broker.configuration.address_overrides import canonical_host
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.quotas import ALL_QUOTAS, ENTITY_TYPES, IP, QuotaEntity
from tidelog.protocol.steps import Pace, Steps, each

STEP_COST_CHANGE = 10
_Wanted: TypeAlias = "dict[str, types.DescribeClientQuotasRequestComponent]"


class MatchType(IntEnum):
    """The condition of a filter on the name of an entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class ClientQuotasHandler:
    """Serves DescribeClientQuotas and AlterClientQuotas 0-1."""

    def __init__(self, services: Services) -> None:
        self._quotas = services.quotas
        self._turns = services.turns

    def describe_client_quotas(
        self, context: RequestContext, request: types.DescribeClientQuotasRequest
    ) -> Steps[DictOf[types.DescribeClientQuotasResponse]]:
        wanted = _filter(request.components)
        pace = Pace()
        entries: list[DictOf[types.DescribeClientQuotasResponseEntry]] = []
        for entity, quotas in list(self._quotas.all.items()):
            if pace.spent():
                yield
            if _matches(entity, wanted, is_strict=request.strict):
                entries.append(
                    {
                        "entity": _entity_values(entity),
                        "quotas": [{"key": key, "value": value} for key, value in quotas.items()],
                    }
                )
        return {"error_code": ErrorCode.NONE, "error_message": None, "entries": entries}

    async def alter_client_quotas(
        self, context: RequestContext, request: types.AlterClientQuotasRequest
    ) -> DictOf[types.AlterClientQuotasResponse]:
        pace = Pace()
        errors: dict[QuotaEntity, ApiError] = {}
        changes: dict[QuotaEntity, dict[str, float | None]] = {}
        for entry in request.entries:
            if pace.spent(STEP_COST_CHANGE):
                await self._turns.next()
            entity = _stored(_entity(entry))
            try:
                if entity in changes:
                    raise _invalid("Each entity must appear at most once.")
                if len(entry.ops) > len(ALL_QUOTAS):
                    raise _invalid(f"{len(entry.ops)} changes of quotas; there are only {len(ALL_QUOTAS)}")
                wanted = {op.key: None if op.remove else op.value for op in entry.ops}
                self._quotas.check(entity, wanted)
                changes[entity] = wanted
            except ApiError as error:
                errors[entity] = again(error)
        allowed = {entity: wanted for entity, wanted in changes.items() if entity not in errors}
        if allowed and not request.validate_only:
            await self._quotas.alter(allowed)
        return {"entries": await self._turns.run(each(partial(_result, errors), request.entries, pace))}


def _result(
    errors: Mapping[QuotaEntity, ApiError], entry: types.AlterClientQuotasRequestEntry
) -> DictOf[types.AlterClientQuotasResponseEntry]:
    entity = _entity(entry)
    error = errors.get(_stored(entity))
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else error.message,
        "entity": _entity_values(entity),
    }


def _entity(entry: types.AlterClientQuotasRequestEntry) -> QuotaEntity:
    """One type more than there are is enough to refuse it."""
    named = ((one.entity_type, one.entity_name) for one in entry.entity[: len(ENTITY_TYPES) + 1])
    return tuple(sorted(named, key=lambda each: (each[0], each[1] or "")))


def _stored(entity: QuotaEntity) -> QuotaEntity:
    """The entity with the one text of its address: Java writes IPv6 in full."""
    return tuple((kind, canonical_host(name) if kind == IP and name else name) for kind, name in entity)


def _entity_values(entity: QuotaEntity) -> list[DictOf[types.QuotaEntity]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


def _filter(components: Sequence[types.DescribeClientQuotasRequestComponent]) -> _Wanted:
    """Entity type -> what is wanted of it. Raises ApiError(INVALID_REQUEST)."""
    wanted: _Wanted = {}
    if len(components) > len(ENTITY_TYPES):
        raise _invalid(f"expected each of {', '.join(ENTITY_TYPES)} once, got {len(components)} entity types")
    for one in components:
        if one.entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unexpected client quota entity type {one.entity_type}")
        if one.entity_type in wanted:
            raise _invalid(f"Entity type {one.entity_type} cannot appear more than once")
        if one.match_type not in tuple(MatchType):
            raise _invalid(f"Unknown match type {one.match_type}")
        if (one.match is None) == (one.match_type == MatchType.EXACT):
            raise _invalid("An exact match needs a name to match, and no other has one")
        if one.entity_type == IP and one.match:
            one.match = canonical_host(one.match)
        wanted[one.entity_type] = one
    return wanted


def _matches(entity: QuotaEntity, wanted: _Wanted, *, is_strict: bool) -> bool:
    """Whether an entity has all types that are wanted, with `is_strict` no others, and their names."""
    named = dict(entity)
    if not wanted.keys() <= named.keys() or (is_strict and len(named) > len(wanted)):
        return False
    return all(one.match_type == MatchType.ANY or named[kind] == one.match for kind, one in wanted.items())


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
