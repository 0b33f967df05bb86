"""An application that may be killed at any moment: sends numbered records, saves its session and position.

Run as `python -m tests.conformance.session_worker ADDRESS TOPIC STATE_FILE RECORDS SEED`. What it sends
depends on the record's number alone, how it sends it (batches, saves) on the seed.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from tidelog.client import Producer, ProducerSession

KEYS = 7


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value of the input's record `number`."""
    return b"key-%d" % (number * number % KEYS), b"%06d" % number


def save(path: Path, position: int, session: ProducerSession) -> None:
    """All or nothing, also when killed."""
    written = path.with_suffix(".new")
    with written.open("w") as file:
        json.dump({"position": position, "session": session.to_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)


def load(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


async def work(address: str, topic: str, path: Path, records: int, seed: int) -> None:
    rng = random.Random(seed)
    saved = load(path)
    producer = Producer(
        bootstrap_servers=address,
        max_batch_size=rng.choice([100, 300, 1_000]),
        linger_ms=rng.choice([0, 1]),
        session=ProducerSession.from_dict(saved["session"]) if saved else None,
    )
    async with producer:
        position = saved["position"] if saved else 0
        if saved is None:
            save(path, position, await producer.session())
        while position < records:
            until = min(records, position + rng.randint(1, 400))
            for number in range(position, until):
                key, value = record(number)
                _ = await producer.send(topic, value, key=key)
            position = until
            save(path, position, await producer.session())


if __name__ == "__main__":
    _, address, topic, state_file, records, seed = sys.argv
    asyncio.run(work(address, topic, Path(state_file), int(records), int(seed)))
