"""The quota on changes of topics: partitions that a client may create and delete per second.

Owns when a request is above `controller_mutation_rate`. Newer versions are strict: while the client is in
debt, each change is refused with THROTTLING_QUOTA_EXCEEDED, and a change that is accepted may end in debt. In
older versions, whose clients do not know that code, every change is accepted, and the client waits for its
debt afterwards, as with the other quotas.

Pure: the caller passes the clock, in seconds. Source: KIP-599; Kafka's ControllerMutationQuotaManager.
"""

from collections.abc import Callable
from typing import Final

from tidelog.broker.limits.client_quotas import Bucket
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

_STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""First strict version; an API that is not here (Metadata, which may create topics) has none."""


class MutationQuota:
    """Charges the partitions that one request creates or deletes to its client's quota."""

    def __init__(
        self, bucket: Bucket | None, api_key: int, api_version: int, now: Callable[[], float]
    ) -> None:
        """`bucket` is None if the client has no such quota."""
        first_strict = _STRICT_FROM.get(ApiKey(api_key))
        self._is_strict = first_strict is not None and api_version >= first_strict
        self._bucket = bucket
        self._now = now
        self.is_limited = bucket is not None
        self.is_exceeded = False
        """Whether the client has to wait after this request."""

    def charge(self, partitions: int) -> None:
        """This number of partitions is about to be created or deleted. Raises ApiError if they may not be."""
        if self._bucket is None:
            return
        now = self._now()
        if self._is_strict:
            if self._bucket.delay_seconds(now) > 0:
                self.is_exceeded = True
                message = "The throttling quota has been exceeded."
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
            self._bucket.charge(partitions, now)
        else:
            self._bucket.charge(partitions, now)
            self.is_exceeded = self._bucket.delay_seconds(now) > 0
