"""Decides which ordered fault applies to which request: the rules of `tidelog fault`.

Owns the orders (drop an answer, delay it, answer an error, cut the connection), their counts, and the choice
for one request. Invariants:
- orders are checked from the oldest to the newest; every delay that matches a request applies to it, and of
  the other kinds only the first that matches, so no other order is used up;
- an order skips the first `skip` requests that match it, applies to the next `count`, and is then finished;
- an order that needs an answer (drop, delay, error) never matches a request without one (acks=0).

Pure: no I/O, clock, asyncio or logging.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

ENABLE_HINT = "start the broker with --enable-faults (setting faults.enable=true)"
FINISHED_KEPT = 100
MOST_ORDERS = 1_000
_LONGEST_DELAY_MS = 3_600_000
_INT = 2**31 - 1


class FaultError(ValueError):
    """An invalid order; the message says what is wrong with it."""


class FaultKind(StrEnum):
    """What happens to a request."""

    DROP = "drop"
    DELAY = "delay"
    ERROR = "error"
    CUT = "cut"


class Moment(StrEnum):
    """Before the request takes effect (a batch is not stored) or after it (stored and durable)."""

    BEFORE = "before"
    AFTER = "after"


APIS: Mapping[str, tuple[ApiKey, bool, bool]] = {
    "produce": (ApiKey.PRODUCE, True, True),
    "fetch": (ApiKey.FETCH, True, True),
    "metadata": (ApiKey.METADATA, True, False),
    "init_producer_id": (ApiKey.INIT_PRODUCER_ID, False, False),
    # Both may name no topic, if the session has them.
    "share_fetch": (ApiKey.SHARE_FETCH, False, False),
    "share_acknowledge": (ApiKey.SHARE_ACKNOWLEDGE, False, False),
}
"""Name -> API, whether its requests name topics, and partitions."""


@dataclass(frozen=True, slots=True)
class FaultOrder:
    """The order of a user. None for topic, partition or client_id: any. `count` None: until cleared."""

    kind: FaultKind
    api: str = "produce"
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    moment: Moment = Moment.AFTER
    count: int | None = 1
    skip: int = 0
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.NONE


class RequestFacts(NamedTuple):
    """What the rules know of a request. `partitions` gives (topic, partition or -1) for all that it names."""

    api_key: int
    client_id: str | None
    expects_answer: bool
    partitions: Callable[[], list[tuple[str, int]]]


class Plan(NamedTuple):
    """What is to be done with one request: wait `delay_ms`, then `kind` if there is one."""

    fault_ids: tuple[int, ...]
    delay_ms: int
    kind: FaultKind | None
    moment: Moment
    error: ErrorCode


@dataclass(slots=True)
class Fault:
    """An order, and how often it was carried out."""

    fault_id: int
    order: FaultOrder
    skipped: int = 0
    hits: int = 0

    @property
    def remaining(self) -> int | None:
        return None if self.order.count is None else self.order.count - self.hits

    def describe(self) -> dict[str, Any]:
        """As JSON shows it."""
        order = self.order
        return {
            "id": self.fault_id,
            "fault": order.kind.value,
            "api": order.api,
            "topic": order.topic,
            "partition": order.partition,
            "client_id": order.client_id,
            "when": order.moment.value,
            "skip": order.skip - self.skipped,
            "remaining": self.remaining,
            "hits": self.hits,
            "delay_ms": order.delay_ms if order.kind is FaultKind.DELAY else None,
            "error": order.error.name if order.kind is FaultKind.ERROR else None,
        }


class FaultRules:
    """Keeps the orders of one broker, and decides which fault a request gets."""

    def __init__(self) -> None:
        self.active: list[Fault] = []
        """Oldest first."""
        self.finished: deque[Fault] = deque(maxlen=FINISHED_KEPT)
        self._next_id = 1

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        """As JSON shows them: those that still apply, and those that are finished."""
        return {
            "faults": [fault.describe() for fault in self.active],
            "finished": [fault.describe() for fault in self.finished],
        }

    def add(self, order: FaultOrder) -> Fault:
        """Add an order. Raises FaultError when there are too many."""
        if len(self.active) >= MOST_ORDERS:
            raise FaultError(f"{MOST_ORDERS} faults are active already; clear some first")
        fault = Fault(self._next_id, order)
        self._next_id += 1
        self.active.append(fault)
        return fault

    def clear(self, fault_id: int | None = None) -> int:
        """Remove one order, or all; returns how many were removed."""
        kept = [] if fault_id is None else [fault for fault in self.active if fault.fault_id != fault_id]
        cleared, self.active = len(self.active) - len(kept), kept
        return cleared

    def decide(self, facts: RequestFacts) -> Plan | None:
        """What to do with a request that has just arrived, or None. Counts it."""
        delay_ms = 0
        chosen: Fault | None = None
        ids: list[int] = []
        for fault in list(self.active):
            is_delay = fault.order.kind is FaultKind.DELAY
            if (chosen is not None and not is_delay) or not _fits(fault.order, facts):
                continue
            if fault.skipped < fault.order.skip:
                fault.skipped += 1
                continue
            ids.append(fault.fault_id)
            self._hit(fault)
            if is_delay:
                delay_ms += fault.order.delay_ms
            else:
                chosen = fault
        if not ids:
            return None
        if chosen is None:
            return Plan(tuple(ids), delay_ms, None, Moment.AFTER, ErrorCode.NONE)
        order = chosen.order
        return Plan(tuple(ids), delay_ms, order.kind, order.moment, order.error)

    def _hit(self, fault: Fault) -> None:
        fault.hits += 1
        if fault.remaining == 0:
            self.active.remove(fault)
            self.finished.append(fault)


def _fits(order: FaultOrder, facts: RequestFacts) -> bool:
    if APIS[order.api][0] != facts.api_key:
        return False
    if order.kind is not FaultKind.CUT and not facts.expects_answer:
        return False
    if order.client_id is not None and order.client_id != facts.client_id:
        return False
    if order.topic is None and order.partition is None:
        return True
    return any(
        order.topic in (None, topic) and order.partition in (None, index)
        for topic, index in facts.partitions()
    )


def parse_order(values: Mapping[str, object]) -> FaultOrder:
    """An order from JSON: `fault`, and the names that `Fault.describe` uses. Raises FaultError."""
    known = {"fault", "api", "topic", "partition", "client_id", "when", "count", "skip", "delay_ms", "error"}
    unknown = values.keys() - known
    if unknown:
        raise FaultError(f"unknown field {min(unknown)!r}; known are {', '.join(sorted(known))}")
    kind = FaultKind(_choice(values, "fault", [each.value for each in FaultKind]))
    api = _choice(values, "api", list(APIS), "produce")
    moment = Moment(_choice(values, "when", [each.value for each in Moment], Moment.AFTER.value))
    topic, client_id = _text(values, "topic"), _text(values, "client_id")
    partition = _number(values, "partition", 0)
    count = _number(values, "count", 1) if "count" in values else 1
    _, names_topics, names_partitions = APIS[api]
    if topic is not None and not names_topics:
        raise FaultError(f"a {api} request names no topic; leave topic out")
    if partition is not None and not names_partitions:
        raise FaultError(f"a {api} request names no partition; leave partition out")
    if moment is Moment.BEFORE and kind in (FaultKind.DROP, FaultKind.DELAY):
        raise FaultError(f"{kind} concerns the answer; when=before is for error and cut")
    delay_ms = _number(values, "delay_ms", 1, _LONGEST_DELAY_MS)
    if (kind is FaultKind.DELAY) != (delay_ms is not None):
        raise FaultError("delay needs delay_ms" if kind is FaultKind.DELAY else "delay_ms is for delay only")
    if (kind is FaultKind.ERROR) != (values.get("error") is not None):
        raise FaultError("error needs a code" if kind is FaultKind.ERROR else "error is for fault=error only")
    error = parse_error_code(values["error"]) if kind is FaultKind.ERROR else ErrorCode.NONE
    skip = _number(values, "skip", 0) or 0
    return FaultOrder(kind, api, topic, partition, client_id, moment, count, skip, delay_ms or 0, error)


def parse_error_code(value: object) -> ErrorCode:
    """A code by Kafka's name or by number. Raises FaultError for one that Kafka does not have, and for 0."""
    text = str(value).strip()
    try:
        is_number = text.removeprefix("-").isdigit()
        code = ErrorCode(int(text)) if is_number else ErrorCode[text.upper().replace("-", "_")]
    except (ValueError, KeyError):
        raise FaultError(
            f"{value!r} is no error code; give Kafka's number or name, such as 45 or"
            " OUT_OF_ORDER_SEQUENCE_NUMBER"
        ) from None
    if code is ErrorCode.NONE:
        raise FaultError("0 is success; give the code of an error")
    return code


def _choice(values: Mapping[str, object], name: str, choices: list[str], default: str = "") -> str:
    value = values.get(name)
    text = default if value is None else str(value).replace("-", "_")
    if text not in choices:
        raise FaultError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return text


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise FaultError(f"{name}: expected a text that is not empty, got {value!r}")
    return value


def _number(values: Mapping[str, object], name: str, low: int, high: int = _INT) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FaultError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")
    return value
