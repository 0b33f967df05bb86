"""The share consumer: it reads records that no other member has, and acknowledges them.

Owns: the public interface. Invariants:
- a record that is returned is held: no other member of the group gets it while its lock lasts;
- with explicit acknowledgement, nothing is accepted that the application did not accept. With implicit
  acknowledgement, a record is accepted when the next ones are asked for, unless it was acknowledged;
- a record that a deserializer refuses is released, so the group's delivery limit ends its retries;
- `stop` sends what was acknowledged and releases the rest.
All calls must come from one event loop; several tasks may read from one consumer, with explicit
acknowledgement. Source: KIP-932, Kafka's KafkaShareConsumer, aiokafka for names.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from time import monotonic
from typing import Any, Generic, Self, Unpack

from tidelog.client.arguments import function_or_none, read_limits
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.client.consumer.conversion import Deserializer, converted, prepared
from tidelog.client.consumer.waiters import Waiters
from tidelog.client.errors import DeserializerNotReadyError, RecordDeserializationError
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.client.keywords import shows_settings, take_cluster
from tidelog.client.metrics import ClientMetrics
from tidelog.client.share.config import EXPLICIT, ShareConsumerConfig, ShareConsumerSettings
from tidelog.client.share.fetcher import ShareFetcher
from tidelog.client.share.group import ShareGroup
from tidelog.client.share.held import AcknowledgeType
from tidelog.client.share.records import ShareRecord
from tidelog.client.types import KT, VT
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster
from tidelog.wire.cluster_config import ClusterConfig
from tidelog.wire.errors import ClientClosedError

_CLIENT_ID = "tidelog-share-consumer"


@shows_settings(ClusterConfig, ShareConsumerConfig, client_id=_CLIENT_ID)
class ShareConsumer(Generic[KT, VT]):
    """`async with ShareConsumer("jobs", bootstrap_servers="host:port", group_id="workers") as consumer:`,
    `async for record in consumer:`, `async with record.processing():`

    The members of a share group share the records of its topics one by one, so there may be more members than
    partitions, and records are not in order. The types of keys and values are those that the deserializers
    return, without them `bytes | None`. `cluster` holds the connection settings as one value; keywords
    override it. `ClusterConfig` and `ShareConsumerConfig` declare the settings.
    """

    def __init__(
        self,
        *topics: str,
        key_deserializer: Deserializer[KT] | None = None,
        value_deserializer: Deserializer[VT] | None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None:
        own: dict[str, Any] = {**settings}
        cluster = take_cluster(own, ShareConsumerConfig, client_id=_CLIENT_ID)
        self._cluster = Cluster(cluster, ASKED_APIS, metrics=ClientMetrics())
        self._config = ShareConsumerConfig(**own)
        for_keys = function_or_none(key_deserializer, "key_deserializer")
        self._deserializers = for_keys, function_or_none(value_deserializer, "value_deserializer")
        self._subscription = TopicSubscription.of(topics, None) if topics else None
        self._is_explicit = self._config.share_acknowledgement_mode == EXPLICIT
        # With implicit acknowledgement: those that the next read accepts.
        self._returned: list[ShareRecord[KT, VT]] = []
        self._waiters = Waiters()
        self._starts = asyncio.Lock()
        self._fetcher: ShareFetcher | None = None
        self._group: ShareGroup | None = None
        self._is_ending = False

    async def start(self) -> None:
        """Connect, and join the group in the background. Raises BrokerUnavailableError. After an error it can
        be called again."""
        async with self._starts:
            if self._is_ending:
                raise ClientClosedError("a share consumer cannot be started again")
            if self._fetcher is not None:
                return
            await self._cluster.start()
            self._cluster.on_failure = self._waiters.wake
            self._group = group = ShareGroup(self._config, self._cluster, self._assign, self._waiters.wake)
            member_id = group.membership.identity.member_id
            self._fetcher = ShareFetcher(self._config, self._cluster, member_id, self._waiters.wake)
            group.start(self._fetcher.idle_seconds)
            if self._subscription is not None:
                group.subscribe(self._subscription)

    async def stop(self) -> None:
        """Send what was acknowledged, release what else is held, and leave the group. Waiting reads raise
        ClientClosedError, iterations end. A second call does nothing.

        With implicit acknowledgement, the last returned records are accepted. But if an exception is being
        handled (`async with`, `finally`, `except`), they are released: they may be unfinished. Brokers that
        do not answer delay this up to request_timeout_ms.
        """
        if self._is_ending:
            return
        self._cluster.require_loop()
        self._is_ending = True
        self._waiters.wake()
        if sys.exc_info()[0] is None:
            self._accept_returned()
        try:
            if self._fetcher is not None and self._group is not None:
                await self._fetcher.close()
                await self._group.close()
        finally:
            await self._cluster.close()

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics instead of the last ones. Raises ValueError for none, TypeError."""
        self._subscription = TopicSubscription.of(topics, None)
        if self._group is not None:
            self._group.subscribe(self._subscription)

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group. What is held can still be acknowledged."""
        self._subscription = None
        if self._group is not None:
            self._group.subscribe(None)

    def subscription(self) -> frozenset[str]:
        """The topics that were subscribed to."""
        return frozenset() if self._subscription is None else self._subscription.names or frozenset()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the broker assigned. Other members may read them too."""
        return set() if self._fetcher is None else set(self._fetcher.assigned)

    # Reading

    async def getone(self) -> ShareRecord[KT, VT]:
        """The next record. Waits until there is one.

        Raises the error of a partition (CorruptRecordError, TopicAuthorizationFailedError, ...),
        RecordDeserializationError, what ended the membership, ClientClosedError, ValueError (no topic).
        """
        while True:
            if records := await self._take(1):
                return records[0]
            await self._wait(None)

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord[KT, VT]]]:
        """The records that were fetched, at most `max_records` (default: `max_poll_records`).

        Waits up to `timeout_ms` for the first record; the result is empty if none came. Raises as `getone`
        does, but only if it has no records to return.
        """
        seconds, most = read_limits(timeout_ms, max_records, self._config.max_poll_records)
        deadline = asyncio.get_running_loop().time() + seconds
        while not (records := await self._take(most)):
            if not await self._wait(deadline):
                return {}
        found: dict[TopicPartition, list[ShareRecord[KT, VT]]] = {}
        for record in records:
            found.setdefault(record.topic_partition, []).append(record)
        return found

    def __aiter__(self) -> AsyncIterator[ShareRecord[KT, VT]]:
        return self

    async def __anext__(self) -> ShareRecord[KT, VT]:
        try:
            return await self.getone()
        except ClientClosedError:
            if not self._is_ending:
                raise
            raise StopAsyncIteration from None

    # Acknowledgement

    def acknowledge(
        self, record: ShareRecord[Any, Any], kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """As the methods of the record. It is sent in the background."""
        record.acknowledge(kind)

    async def commit(self) -> None:
        """Wait until the broker has stored every acknowledgement. With implicit acknowledgement, all returned
        records are accepted. Raises AcknowledgementError for those that were refused since the last call:
        others may get these records again."""
        fetcher = self._require_open()
        self._accept_returned()
        await fetcher.commit()

    def metrics(self) -> dict[str, float]:
        """The metrics of this client by Kafka's names. `client.metrics` can also report them regularly."""
        fetcher = self._fetcher
        own: dict[str, float] = {"assigned-partitions": len(self.assignment())}
        if fetcher is not None:
            own |= {
                "acknowledgements-send-total": fetcher.acknowledged_count + fetcher.refused_count,
                "acknowledgements-error-total": fetcher.refused_count,
            }
        if self._group is not None:
            own["rebalance-total"] = self._group.membership.rebalances
        return self._cluster.metrics.snapshot(monotonic()) | own

    async def _take(self, limit: int) -> list[ShareRecord[KT, VT]]:
        """Up to `limit` records. Raises what is wrong if there are none."""
        fetcher = self._require_open()
        if self._subscription is None:
            raise ValueError("the share consumer has no topics: give it some, or call subscribe()")
        if not self._is_explicit and fetcher.waiting_reads:
            raise RuntimeError("with implicit acknowledgement one task reads at a time: use explicit")
        if self._group is not None:
            self._group.asked()
        self._accept_returned()
        taken: list[Any] = fetcher.take(limit)
        if not taken:
            self._raise_error(fetcher)
            return []
        try:
            records: list[Any] = converted(taken, *self._deserializers)
        except RecordDeserializationError as error:
            if isinstance(error.__cause__, DeserializerNotReadyError):
                fetcher.put_back(taken)
                await prepared(error)
                return await self._take(limit)
            taken[0].release()
            fetcher.put_back(taken[1:])
            raise
        fetcher.put_back(taken[len(records) :])
        if not self._is_explicit:
            self._returned = records
        return records

    def _raise_error(self, fetcher: ShareFetcher) -> None:
        if self._group is not None:
            self._group.raise_error()
        self._cluster.raise_failure()
        if fetcher.errors:
            _, error = fetcher.errors.popitem()
            raise error.with_traceback(None)

    def _accept_returned(self) -> None:
        returned, self._returned = self._returned, []
        for record in returned:
            if record.holder.awaits_acknowledgement(record.offset):
                record.accept()

    async def _wait(self, deadline: float | None) -> bool:
        """Wait for records or errors. False if the deadline has passed."""
        fetcher = self._require_open()
        fetcher.waiting_reads += 1
        try:
            return await self._waiters.wait(deadline)
        finally:
            fetcher.waiting_reads -= 1

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        if self._fetcher is not None:
            self._fetcher.assign(partitions)

    def _require_open(self) -> ShareFetcher:
        if self._fetcher is None or self._is_ending:
            raise ClientClosedError("the share consumer is not open")
        self._cluster.require_loop()
        return self._fetcher
