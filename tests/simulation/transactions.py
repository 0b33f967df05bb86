"""Plays seeds of `world`: everything in one process and on one thread, so that a seed replays exactly.

`python -m tests.simulation.transactions --seeds 5000` plays many on all cores, and goes on where the last run
on this commit ended; `--first N --seeds 1` replays one. Half of the seeds use clients that know
transaction.version 2, the others do not.
"""

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import structlog

from faults.checker import Finding, Kind
from tests.simulation.seeds import Memory, commit
from tests.simulation.share_world import ShareWorld
from tests.simulation.virtual_broker import ThreadsAtOnce, VirtualGroupCommit
from tests.simulation.virtual_loop import NODE, VirtualLoop
from tests.simulation.world import ALONE, Run, Shape, World
from tidelog.broker import opening
from tidelog.broker.cluster import etcd_client, etcd_session, etcd_store, membership
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.handlers import fetch
from tidelog.broker.net import connection as broker_connection
from tidelog.broker.net import memory_guard
from tidelog.broker.replicas import fetcher, replica_log
from tidelog.broker.storage import manager
from tidelog.broker.tiering import fetches, tiering
from tidelog.client.producer import outcomes, producer
from tidelog.wire.connection import Connection

_EXPECTED = (
    "append_refused",
    "cluster_store_failed",
    "producer_ids_not_reserved",
    "remote_read_failed",
    "remote_storage_failed",
    "remote_topic_left",
)
"""Errors that brokers may log while etcd or remote storage does not answer, or a disk is full."""


def play(seed: int, shape: Shape = ALONE, world: Callable[..., World] = World) -> Run:
    """Play one seed."""
    with _without_remains():
        return _played(seed, shape, world)


def _played(seed: int, shape: Shape, world: Callable[..., World]) -> Run:
    loop = VirtualLoop(random.Random(f"loop {seed}"))
    alarms: list[str] = []
    events: Counter[str] = Counter()
    # A seed plays with every transaction.version that clients meet.
    has_epochs = bool(seed % 2)
    try:
        with _patched(seed, loop, alarms, events, has_epochs=has_epochs):
            loop.set_exception_handler(lambda _, context: _note(alarms, context))
            asyncio.set_event_loop(loop)
            run = loop.run_until_complete(world(seed, loop, shape, has_epochs=has_epochs).play())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    run.done |= Counter({f"logged by the broker: {event}": count for event, count in events.items()})
    for text in alarms:
        run.find(Kind.ALARM, text)
    return run


def _note(alarms: list[str], context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    # Whoever waits for a change of the catalog may be dead when it fails.
    if isinstance(error, Exception) and not isinstance(error, StoreError):
        alarms.append(f"{context.get('message')}: {error!r}")


@contextmanager
def _without_remains() -> Iterator[None]:
    """What dead nodes left undone is collected here, without a word, and not while something else runs."""
    told = sys.unraisablehook
    gc.disable()
    try:
        yield
    finally:
        sys.unraisablehook = lambda _: None
        gc.collect(0)
        sys.unraisablehook = told
        gc.enable()


@contextmanager
def _patched(
    seed: int, loop: VirtualLoop, alarms: list[str], events: Counter[str], *, has_epochs: bool
) -> Iterator[None]:
    """Randomness from the seed alone, virtual time for syncs and turns, the broker's errors as alarms."""
    real = random.Random
    drawn = real(f"all {seed}")

    def seeded(*arguments: Any) -> random.Random:
        return real(*(arguments or (drawn.random(),)))

    def keep(_: Any, method: str, event: Any) -> Any:
        node = NODE.get()
        if node is not None and node.name.startswith("broker"):
            events[event["event"]] += 1
            if method in ("error", "critical") and event["event"] not in _EXPECTED:
                alarms.append(str(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    clock = SimpleNamespace(perf_counter=loop.time)
    monotonic = SimpleNamespace(monotonic=loop.monotonic)
    features: Any = property(lambda _: {}, lambda _, __: None) if not has_epochs else Connection.features
    try:
        with (
            patch.object(random, "Random", seeded),
            patch.object(os, "urandom", drawn.randbytes),
            patch.object(fetch, "secrets", SimpleNamespace(randbelow=drawn.randrange)),
            patch.object(opening, "GroupCommit", VirtualGroupCommit),
            patch.object(manager, "ThreadPoolExecutor", ThreadsAtOnce),
            patch.object(broker_connection, "time", clock),
            patch.object(memory_guard, "time", clock),
            patch.object(etcd_client, "time", monotonic),
            patch.object(etcd_session, "time", monotonic),
            patch.object(etcd_store, "time", monotonic),
            patch.object(fetcher, "random", real(f"fetchers {seed}")),
            patch.object(membership, "time", monotonic),
            patch.object(replica_log, "time", monotonic),
            patch.object(tiering, "time", monotonic),
            patch.object(fetches, "time", monotonic),
            # Timestamps have more bytes or fewer, so they decide where a segment ends.
            patch.object(producer, "time", lambda: loop.now_ms() / 1000),
            patch.object(producer, "time_ns", lambda: loop.now_ms() * 1_000_000),
            # It would keep what a dead client waited for, and so its world.
            patch.object(outcomes, "weakref", SimpleNamespace(finalize=lambda *_: None)),
            patch.object(Connection, "features", features),
        ):
            yield
    finally:
        structlog.configure(**before)


def _begin_worker() -> None:
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    gc.freeze()


def _summary(seed: int, shape: Shape, world: Callable[..., World]) -> tuple[int, list[Finding], Counter[str]]:
    run = play(seed, shape, world)
    summary = seed, run.findings, run.done
    # A worker plays thousands of seeds: its world must go before the next one.
    del run
    gc.collect()
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Play many seeds; the exit code is 1 if any has findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.transactions")
    parser.add_argument("--seeds", type=int, default=5_000)
    parser.add_argument("--first", type=int, help="the first seed (default: the next one of this commit)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--tiered", action="store_true", help="keep closed segments in remote storage")
    parser.add_argument("--moves", action="store_true", help="reassign partitions in each seed")
    parser.add_argument("--share-groups", action="store_true", help="share groups instead of transactions")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(arguments)
    began, done, failed = time.monotonic(), Counter[str](), 0
    world = ShareWorld if options.share_groups else World
    shape = ALONE if options.brokers == 1 else Shape(options.brokers, options.replicas, moves=options.moves)
    shape = shape._replace(is_tiered=options.tiered)
    name, memory = commit(), Memory()
    kind = f"{world.__name__} brokers={options.brokers} replicas={options.replicas} moves={options.moves}"
    kind += " tiered" * options.tiered
    first = memory.next_seed(name, kind) if options.first is None else options.first
    play_one = partial(_summary, shape=shape, world=world)
    next_seed = first
    with multiprocessing.Pool(min(options.jobs, options.seeds), _begin_worker) as pool:
        for seed, findings, own in pool.imap(play_one, range(first, first + options.seeds)):
            done += own
            if findings:
                failed += 1
                print(f"seed {seed}: {len(findings)} findings", flush=True)
                for finding in findings[:6]:
                    print(f"  {finding.kind}: {finding.text}", flush=True)
            next_seed = seed + 1
            if options.first is None:
                memory.played(name, kind, next_seed)
            if time.monotonic() - began > options.seconds:
                break
    seconds = time.monotonic() - began
    print(f"{next_seed - first} seeds from {first} of {name} in {seconds:.0f} s: {failed} with findings")
    for what, count in sorted(done.items()):
        print(f"{count:>9,} × {what}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
