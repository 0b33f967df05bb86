"""`python -m faults.transactions.processor NAME CLIENT SEED JOURNAL JOB`: a process that is killed at random.

Consumes inputs, transforms them, and produces the outputs and the offsets in transactions. It aborts some of
them on purpose. Before each step it writes to its journal what it knows of the transaction; the kernel keeps
this when the process is killed. `JOB` is a `Job` as JSON.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Final

from faults.transactions.client import Abortable, Client, Job, client_of
from faults.transactions.history import AttemptId, begin_line, outputs_of, record_of

MOST_SOURCES: Final = 25
_ABORTED_SHARE: Final = 0.1
_LONGEST_PAUSE_S: Final = 0.03


class Journal:
    """Appends lines to a file, which has them also after the process was killed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")


async def process(
    name: str, client: Client, journal: Journal, rng: random.Random, most_sources: int = MOST_SOURCES
) -> None:
    """Process inputs without end, up to `most_sources` in a transaction. Raises whatever the client raises
    where it can do nothing more."""
    await client.open()
    number = 0
    while True:
        sources = await client.read(rng.randint(1, most_sources))
        if not sources:
            continue
        journal.note(begin_line(number, asyncio.get_running_loop().time(), sources))
        try:
            await client.begin()
            for output in outputs_of(AttemptId(name, number), sources):
                await client.send(output.place, *record_of(output))
            await asyncio.sleep(rng.random() * _LONGEST_PAUSE_S)
            positions: dict[int, int] = {}
            for partition, offset in sources:
                positions[partition] = max(offset + 1, positions.get(partition, 0))
            await client.send_offsets(positions)
            if rng.random() < _ABORTED_SHARE:
                raise Abortable
            journal.note(f"commit {number}")
            await client.commit()
        except Abortable:
            await client.abort()
            journal.note(f"aborted {number}")
            await client.rewind()
        else:
            journal.note(f"committed {number}")
        number += 1


def main(arguments: list[str]) -> None:
    name, client, seed, journal, job = arguments
    rng = random.Random(f"{seed} {name}")
    asyncio.run(process(name, client_of(client, Job(**json.loads(job))), Journal(Path(journal)), rng))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        # The parent process reads why, and starts another. Clients are left as they are, as by a kill.
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
