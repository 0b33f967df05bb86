"""`python -m faults`: break a broker in every known way for a while, and check what is stored.

Owns the list of trials and their shares of the time. `SECONDS` and `SEED` may come from the environment. Exit
code 0 without findings, 1 with findings, 2 if it could not run.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from faults.cluster.network import lacking
from faults.damage import trial as damage
from faults.histories.report import write_report
from faults.hostile import trial as hostile
from faults.power_cut import trial as power_cut
from faults.process import BrokerProcessError
from faults.report import print_tables, report
from faults.runner import Settings, run
from faults.transactions import trial as transactions
from faults.trial import Outcome, Say, Trial
from tidelog.client import ClientError

_LARGEST_SEED: Final = 1_000_000
_OF_SEVERAL: Final = ("crashes", "transactions", "power")
_NAMES: Final = (*_OF_SEVERAL, "damage", "hostile")


def main(arguments: list[str] | None = None) -> int:
    """Run the trials; returns the exit code."""
    console = Console(highlight=False)
    options = _parse(arguments)
    trials = [
        Trial("crashes", "Crashes and bad networks", 0.6, partial(_crash, console, options)),
        Trial(
            "transactions",
            "Transactions of processors that are killed",
            0.5,
            partial(transactions.run, machines=options.machines),
        ),
        Trial(
            "power",
            "Power cuts on a real file system",
            0.3,
            partial(power_cut.run, machines=options.machines),
        ),
    ]
    if not options.machines:
        trials += [
            Trial("damage", "Damaged files", 0.3, damage.run),
            Trial("hostile", "Hostile peers", 0.2, hostile.run),
        ]
    chosen = [trial for trial in trials if options.only in (None, trial.name)]
    _set_up_logs(options.log)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-faults-"))
    keep = bool(options.keep)
    try:
        found = asyncio.run(_run(chosen, options, folder, console))
        keep = keep or found
        given = [f"--only {options.only}"] if options.only else []
        if options.machines:
            given.append("--machines")
        replay = f"make faults SECONDS={options.seconds:g} SEED={options.seed}"
        replay += f" ARGUMENTS='{' '.join(given)}'" if given else ""
        console.print(f"{'[red]Replay:[/red]' if found else 'Replay:'} {replay}", soft_wrap=True)
        return 1 if found else 0
    except (BrokerProcessError, ClientError) as error:
        console.print(f"The fault runner could not run: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    finally:
        if keep:
            console.print(
                f"The data of the brokers is kept in {folder}, with histories and pictures of anomalies",
                soft_wrap=True,
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _run(trials: Sequence[Trial], options: argparse.Namespace, folder: Path, console: Console) -> bool:
    """Run one trial after the other, each with its share of the time. True if anything was found."""
    began = time.monotonic()

    def say(text: str) -> None:
        if not options.quiet:
            console.print(f"{time.monotonic() - began:7.2f} s  {text}", soft_wrap=True, markup=False)

    found = False
    shares = sum(trial.share for trial in trials)
    console.print(f"Breaking things for {options.seconds:g} s with seed {options.seed}.", soft_wrap=True)
    for trial in trials:
        own = folder / trial.name
        own.mkdir()
        seconds = options.seconds * trial.share / shares
        trial_began = time.monotonic()
        outcome = await trial.run(options.seed, seconds, own, say)
        report(trial, outcome, time.monotonic() - trial_began, console)
        found |= bool(outcome.findings)
    return found


async def _crash(
    console: Console, options: argparse.Namespace, seed: int, seconds: float, folder: Path, say: Say
) -> Outcome:
    """The trial of crashes and bad networks under writers; prints its tables."""
    settings = Settings.drawn(seed, seconds, machines=options.machines)
    say(
        f"{settings.partitions} partitions, segments of {settings.segment_bytes:,} bytes,"
        f" {settings.timestamp_type}, {settings.sync_delay_ms} ms for a sync"
        f" ({settings.thread_share:.0%} in threads),"
        f" a checkpoint each {settings.checkpoint_interval_ms} ms,"
        f" acks.all.durable={str(settings.acks_all_durable).lower()}"
    )
    result = await run(settings, folder / "data", say)
    print_tables(result, console)
    facts = [
        f"{sum(len(log) for logs in result.polls.values() for log in logs.values()):,} records of"
        f" {len(result.polls)} readers, {len(result.looks):,} looks at ends"
    ]
    write_report(folder, facts, result.anomalies)
    tried = Counter({str(kind): count for kind, count in result.steps.items()})
    return Outcome(tried, result.findings, figures=facts)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    seconds = float(os.environ.get("SECONDS") or 60)
    seed = int(os.environ.get("SEED") or random.randrange(_LARGEST_SEED))
    parser = argparse.ArgumentParser(prog="python -m faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=seconds, help="how long (default %(default)g)")
    parser.add_argument("--seed", type=int, default=seed, help="of the schedule (default: a random one)")
    parser.add_argument("--only", choices=_NAMES, help="one kind of trial alone, with all the time")
    parser.add_argument(
        "--machines",
        action="store_true",
        help="three brokers and three members of etcd, each in a network namespace, three replicas",
    )
    parser.add_argument("--quiet", action="store_true", help="only the report, not each step")
    parser.add_argument("--keep", action="store_true", help="keep the data folder even without findings")
    parser.add_argument("--log", type=Path, help="write what both clients log to this file")
    options = parser.parse_args(arguments)
    if options.machines and (reason := lacking()):
        parser.error(f"--machines: {reason}")
    if options.machines and options.only not in (None, *_OF_SEVERAL):
        parser.error(f"--only {options.only} is of one broker; of several are {', '.join(_OF_SEVERAL)}")
    return options


def _set_up_logs(path: Path | None) -> None:
    """Clients log every fault. Their logs go to `path`, or are dropped if it is None."""
    names = ("tidelog.client", "librdkafka", "aiokafka", "kafka")
    for name in names:
        logger = logging.getLogger(name)
        logger.propagate = False
        handler = logging.NullHandler() if path is None else logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s %(args)s"))
        logger.addHandler(handler)
        if path is not None:
            logger.setLevel(logging.DEBUG)


if __name__ == "__main__":
    sys.exit(main())
