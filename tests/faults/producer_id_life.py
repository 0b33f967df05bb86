"""One life of a broker's producer ids: hand them out and print each one, until somebody kills the process.

Started by a test of producer ids over kills. The real store, the real cluster, the real shell; nothing else
of a broker, so that a life takes milliseconds and the kill falls somewhere between a commit and the ids
behind it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tidelog.broker.clock import clock_ms
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.coordinator.producer_id_manager import ProducerIds


async def live(folder: Path) -> None:
    store = SqliteStore(folder / "cluster.db", node_id=1)
    ids = ProducerIds(Cluster(await store.load(), store), clock_ms)
    while True:
        producer_id = await ids.next()
        sys.stdout.write(f"{producer_id}\n")
        sys.stdout.flush()
        await asyncio.sleep(0)  # One step of the loop for each, as for the requests of a broker.


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
