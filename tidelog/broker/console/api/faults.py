"""Faults that users order, where `faults.enable` is set; elsewhere each route is refused.

Owns the routes. What an order means, and which are valid, is in `broker.fault_injection`; the
rights are those of /faults.
"""

from typing import Annotated, Final, Literal, TypedDict

import msgspec
from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ALL, Console, route
from tidelog.broker.console.shapes import INT64, Parameters, row_of
from tidelog.broker.fault_injection.injection import FaultInjector
from tidelog.broker.fault_injection.rules import ENABLE_HINT, FaultError, parse_order
from tidelog.broker.security.required_access import ALTER_CLUSTER, DESCRIBE_CLUSTER
from tidelog.protocol.errors import ApiError, ErrorCode

_OF_PRODUCERS: Final = ("forget", "expire", "sequence")
_Number = Annotated[int, Meta(ge=0, le=INT64)]


class FaultState(TypedDict):
    """An order, and how often it was carried out."""

    id: int
    fault: str
    api: str
    topic: str | None
    """None: of any topic; likewise partition and client id."""
    partition: int | None
    client_id: str | None
    when: str
    skip: int
    """How many requests are left out before it begins."""
    remaining: int | None
    """None: until it is cleared."""
    hits: int
    delay_ms: int | None
    error: str | None


class FaultList(TypedDict):
    is_enabled: bool
    faults: list[FaultState]
    finished: list[FaultState]
    """The last ones."""


class Ordered(TypedDict):
    """The answer to an order: the fault as the broker understood it."""

    fault: dict[str, str | int | None]


class Cleared(TypedDict):
    cleared: int


class Order(Parameters, frozen=True, kw_only=True):
    """A fault: for requests (drop, delay, error, cut), or for a producer that a partition remembers (forget,
    expire, sequence), which need topic, partition and producer_id."""

    fault: Literal["drop", "delay", "error", "cut", "forget", "expire", "sequence"]
    api: (
        Literal["produce", "fetch", "metadata", "init_producer_id", "share_fetch", "share_acknowledge"] | None
    ) = None
    topic: str | None = None
    partition: _Number | None = None
    client_id: str | None = None
    when: Literal["before", "after"] | None = None
    count: Annotated[int, Meta(ge=0, description="How many requests; 0: until cleared.")] | None = None
    skip: _Number | None = None
    delay_ms: _Number | None = None
    error: Annotated[str, Meta(description="Name or number of an error of Kafka.")] | None = None
    producer_id: _Number | None = None
    next_sequence: _Number | None = None
    producer_epoch: _Number | None = None


class OneOrAll(Parameters, frozen=True, kw_only=True):
    id: Annotated[int, Meta(ge=0, description="Number of the order. Without it: all.")] | None = None


@route("GET", "/faults", needs=DESCRIBE_CLUSTER)
async def faults(console: Console, caller: Caller, asked: Parameters) -> FaultList:
    """The faults that are ordered, and those that are finished, oldest first."""
    held = {"faults": [], "finished": []} if console.faults is None else console.faults.rules.describe()
    return row_of(FaultList, held, is_enabled=console.faults is not None)


@route("POST", "/faults", needs=ALTER_CLUSTER, logged=ALL)
async def order(console: Console, caller: Caller, asked: Order) -> Ordered:
    """Order a fault."""
    injector = _enabled(console)
    values = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    if values.get("count") == 0:
        values["count"] = None
    try:
        if asked.fault in _OF_PRODUCERS:
            return {"fault": dict(injector.producers.apply(values))}
        return {"fault": injector.order(parse_order(values)).describe()}
    except FaultError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


@route("DELETE", "/faults", needs=ALTER_CLUSTER, logged=ALL)
async def clear(console: Console, caller: Caller, asked: OneOrAll) -> Cleared:
    """Clear one fault, or all."""
    cleared = _enabled(console).rules.clear(asked.id)
    if asked.id is not None and not cleared:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"no active fault has the number {asked.id}")
    return {"cleared": cleared}


def _enabled(console: Console) -> FaultInjector:
    if console.faults is None:
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"faults are not enabled on this broker: {ENABLE_HINT}"
        )
    return console.faults
