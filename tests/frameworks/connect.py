"""Kafka Connect's part in a trial: a file source writes the orders into the topic, a file sink bills them.

Both connectors run in one cluster of distributed workers. Its settings, states and the source's positions are
in three compacted topics.
"""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

from bench.targets.process import free_port
from tests.frameworks.java import TERMINATED, java, plugin_path
from tests.frameworks.trial import Framework, Site, Trial

_CLUSTER = "connect-cluster"
_TASKS = 2


class ConnectTrial(Trial):
    """The orders are lines of a file, and so are the bills."""

    def __init__(self, folder: Path, site: Site) -> None:
        super().__init__(Framework("connect-sink", (), exit_code=TERMINATED), folder, site)
        self._folder.mkdir()
        self._orders_file, self._bills_file = self._folder / "orders", self._folder / "bills"
        self._ports: list[int] = []

    async def _begin_work(self) -> None:
        await super()._begin_work()
        self._orders_file.touch()
        await self._until(self._answers, "the REST interface")
        source = {"connector.class": "FileStreamSource", "file": str(self._orders_file)}
        await self._ask("PUT", "/connectors/orders/config", {**source, "topic": self._orders_topic})
        sink = {"connector.class": "FileStreamSink", "file": str(self._bills_file), "tasks.max": str(_TASKS)}
        await self._ask("PUT", "/connectors/sink/config", {**sink, "topics": self._orders_topic})

    async def _start_worker(self) -> None:
        self._ports.append(free_port())
        settings = {
            "bootstrap.servers": self._site.bootstrap_servers,
            "group.id": _CLUSTER,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "producer.enable.idempotence": "true",
            "plugin.path": plugin_path(),
            "plugin.discovery": "service_load",
            "listeners": f"http://127.0.0.1:{self._ports[-1]}",
        }
        file = self._folder / f"worker-{self._ports[-1]}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        await self._start(java("org.apache.kafka.connect.cli.ConnectDistributed", str(file)))

    async def _send_order(self, order: int) -> None:
        with self._orders_file.open("a") as file:
            file.write(f"{order}\n")

    def _bills(self) -> list[dict[str, int]]:
        lines = self._bills_file.read_text().split() if self._bills_file.exists() else ()
        return [{"order": int(line)} for line in lines]

    async def _has_members(self, count: int) -> bool:
        """So many workers, and two tasks of the sink, which one worker may run both."""
        workers = await self._site.admin.groups.describe(_CLUSTER)
        all_joined = workers.state == "Stable" and len(workers.members) == count
        return all_joined and await super()._has_members(_TASKS)

    async def _answers(self) -> bool:
        try:
            await self._ask("GET", "/connectors")
        except (OSError, urllib.error.URLError):
            return False
        return True

    async def _ask(self, method: str, path: str, values: object = None) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports[0]}{path}",
            None if values is None else json.dumps(values).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with await asyncio.to_thread(urllib.request.urlopen, request) as answer:
            answer.read()
