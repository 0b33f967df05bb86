"""`python -m bench.loads.pair_load PORT WAY PID …`: the same work with idempotence and without, turn by turn.

A process of its own. WAY is `raw` (prepared frames), `client` (ours) or `confluent`. Turns are short and
alternate, and who goes first alternates too, so that what else the machine does meets both alike. PID is the
server's, whose CPU time is read around each turn. Prints one JSON line: for `idempotent` and `plain` a list
of seconds, of the server's CPU seconds (`cpu_s`) and of this process's own (`own_cpu_s`), and the most
requests that were in flight. Exit code 1 when a record was not acknowledged.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.loads.sides import Side, Work, open_clients, open_confluents, open_raw
from bench.loads.window import AnswerError
from bench.wire import TOPIC, WireError

_OPENERS = {"raw": open_raw, "client": open_clients, "confluent": open_confluents}


def cpu_seconds(pid: int) -> float:
    """CPU time of a process's threads, user and system, to the nanosecond."""
    return (
        sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    )


def alternate(sides: dict[str, Side], pid: int, turns: int) -> dict[str, Any]:
    """Each side's turns after one that does not count; the numbers as printed."""
    numbers: dict[str, Any] = {}
    for side in sides.values():
        side.send()
    gc.collect()
    gc.disable()
    names = list(sides)
    for number in range(turns):
        for name in names if number % 2 else reversed(names):
            cpu_before, own_before, begin = cpu_seconds(pid), time.process_time(), time.perf_counter()
            sides[name].send()
            taken = time.perf_counter() - begin
            numbers.setdefault(f"{name}_s", []).append(taken)
            numbers.setdefault(f"{name}_own_cpu_s", []).append(time.process_time() - own_before)
            numbers.setdefault(f"{name}_cpu_s", []).append(cpu_seconds(pid) - cpu_before)
    for name, side in sides.items():
        numbers[f"{name}_in_flight"] = side.most_in_flight()
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.pair_load")
    parser.add_argument("port", type=int)
    parser.add_argument("way", choices=_OPENERS)
    parser.add_argument("pid", type=int)
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--records-a-batch", type=int, default=1)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    work = Work(
        given.port, given.topic, given.partitions, given.records, given.value_bytes, given.records_a_batch
    )
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        sides = _OPENERS[given.way](work)
        numbers = alternate(sides, given.pid, given.turns)
        for side in sides.values():
            side.close()
    except (AnswerError, WireError, OSError) as error:
        print(f"the load failed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(numbers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
