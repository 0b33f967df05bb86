"""The clients that ask for subscriptions and push metrics, and what each of them pushed last.

Owns when a request comes too early, which push is refused, and how much is kept: at most `MOST_INSTANCES`
clients (the one that was silent longest makes room), and at most the given number of series of all of them.
A client that was silent for three of its intervals, and a minute, is forgotten, with its series.

Pure: the time is passed in. Source: Kafka's ClientMetricsManager and ClientMetricsInstance; KIP-714.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tidelog.broker.telemetry.metrics_data import Series, Value
from tidelog.broker.telemetry.subscriptions import Client, Subscription
from tidelog.protocol.errors import ApiError, ErrorCode

MOST_INSTANCES: Final = 16_384
_LEAST_SILENCE_MS: Final = 60_000
_MAY_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER: Final = -(1 << 62)


class Instance:
    """One client, with its subscription."""

    __slots__ = (
        "_has_asked", "client", "connection_id", "got_ms", "is_terminating", "last_error", "left_out",
        "pushed_ms", "series", "subscription", "used_ms",
    )  # fmt: skip

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self.client = client
        self.subscription = subscription
        self.connection_id = 0
        """By which it came last."""
        self.got_ms = self.pushed_ms = self.used_ms = _NEVER
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self._has_asked = False
        """Since its last push: the next one may come at once."""
        self.series: Mapping[Series, Value] = {}
        """What it pushed last."""
        self.left_out = 0
        """Series of its last push that there was no room for."""

    def check_get(self, now_ms: int) -> None:
        """Take the time of a GetTelemetrySubscriptions. Raises ApiError(THROTTLING_QUOTA_EXCEEDED)."""
        if self._is_early(now_ms, max(self.got_ms, self.pushed_ms)) and self.last_error not in _MAY_ASK_AGAIN:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.got_ms = now_ms
        self._has_asked = True
        self.last_error = ErrorCode.NONE

    def check_push(self, now_ms: int, subscription_id: int, *, is_terminating: bool) -> None:
        """Take the time of a PushTelemetry. Raises ApiError: INVALID_REQUEST after the last push of a client
        that ends, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID."""
        was_terminating, self.is_terminating = self.is_terminating, is_terminating
        if was_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if not (self._has_asked or is_terminating) and self._is_early(now_ms, self.pushed_ms):
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.pushed_ms = now_ms
        self._has_asked = False
        if subscription_id != self.subscription.subscription_id:
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)

    def _is_early(self, now_ms: int, last_ms: int) -> bool:
        return 0 <= now_ms - last_ms < self.subscription.interval_ms

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self.used_ms > max(_LEAST_SILENCE_MS, 3 * self.subscription.interval_ms)


class ClientInstances:
    """All clients of one broker, by their ids, the one that was silent longest first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[UUID, Instance] = OrderedDict()
        self._series = 0

    def get(self, instance_id: UUID, now_ms: int) -> Instance | None:
        """A known client, which is in use now."""
        found = self._by_id.get(instance_id)
        if found is not None:
            found.used_ms = now_ms
            self._by_id.move_to_end(instance_id)
        return found

    def add(self, instance_id: UUID, made: Instance, now_ms: int) -> Instance:
        """A client that is new, or has another subscription than before."""
        self.remove(instance_id)
        if len(self._by_id) >= MOST_INSTANCES:
            self.remove(next(iter(self._by_id)))
        made.used_ms = now_ms
        self._by_id[instance_id] = made
        return made

    def remove(self, instance_id: UUID) -> None:
        gone = self._by_id.pop(instance_id, None)
        if gone is not None:
            self._series -= len(gone.series)

    def leave(self, instance_id: UUID, connection_id: int) -> None:
        """The client's connection of this id was closed."""
        found = self._by_id.get(instance_id)
        if found is not None and found.connection_id == connection_id:
            self.remove(instance_id)

    def take(
        self, instance_id: UUID, instance: Instance, pushed: Mapping[Series, Value], most_series: int
    ) -> None:
        """Keep what a client pushed, unless it was forgotten meanwhile. Without room for all, series of the
        client as a whole come first."""
        if self._by_id.get(instance_id) is not instance:
            return
        self._series -= len(instance.series)
        room = max(0, most_series - self._series)
        kept = pushed
        if len(pushed) > room:
            kept = dict(sorted(pushed.items(), key=lambda item: len(item[0].labels))[:room])
        instance.series, instance.left_out = kept, len(pushed) - len(kept)
        self._series += len(kept)

    def living(self, now_ms: int) -> list[Instance]:
        """All clients that were not silent for too long; the others are forgotten."""
        for instance_id in [key for key, each in self._by_id.items() if each.is_silent(now_ms)]:
            self.remove(instance_id)
        return list(self._by_id.values())
