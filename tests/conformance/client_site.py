"""Our broker behind a proxy that breaks the network where told, and our clients in front of it."""

from pathlib import Path
from typing import Any

from faults.proxy import FaultProxy
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition

TOPIC = "events"
FIRST = TopicPartition(TOPIC, 0)


class Site:
    """A broker behind a proxy, which is the address that it advertises."""

    def __init__(self, proxy: FaultProxy, data_dir: Path) -> None:
        self.proxy = proxy
        self._data_dir = data_dir
        self.broker: Broker

    @property
    def address(self) -> str:
        return f"{self.proxy.host}:{self.proxy.port}"

    async def start(self, **settings: object) -> None:
        config = BrokerConfig(
            port=0,
            http_port=0,
            data_dir=self._data_dir,
            advertised_host=self.proxy.host,
            advertised_port=self.proxy.port,
            **settings,  # type: ignore[arg-type]
        )
        self.broker = await Broker.start(config)
        self.proxy.retarget(int(self.broker.bootstrap_servers.rpartition(":")[2]))

    async def restart(self) -> None:
        await self.broker.stop()
        await self.start()

    def producer(self, **settings: Any) -> Producer:
        quick: dict[str, Any] = {"retry_backoff_ms": 10, "request_timeout_ms": 5_000}
        return Producer(bootstrap_servers=self.address, **{**quick, **settings})

    def consumer(self, *topics: str, **settings: object) -> Consumer:
        defaults = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "retry_backoff_ms": 10}
        return Consumer(*topics, bootstrap_servers=self.address, **{**defaults, **settings})  # type: ignore[arg-type]

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.address, retry_backoff_ms=10)

    async def create(self, partitions: int = 1, **configs: str) -> None:
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(TOPIC, partitions, 1, configs)])

    async def stored(self) -> list[bytes]:
        """Every value of the topic, partition after partition."""
        async with self.consumer(TOPIC) as consumer:
            ends = await consumer.end_offsets(consumer.assignment())
            left = sum(ends.values())
            by_partition: dict[int, list[bytes]] = {}
            while left:
                for key, records in (await consumer.getmany(timeout_ms=5_000)).items():
                    by_partition.setdefault(key.partition, []).extend(
                        record.value or b"" for record in records
                    )
                    left -= len(records)
        return [value for partition in sorted(by_partition) for value in by_partition[partition]]
