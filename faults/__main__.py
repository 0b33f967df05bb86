"""`python -m faults`: break a broker, its network and its writers for a while, and judge what is stored.

`SECONDS` and `SEED` may come from the environment. Exit code 0 without findings, 1 with, 2 when it could not
run.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from faults.process import BrokerProcessError
from faults.report import report
from faults.runner import Settings, run
from tidelog.client import ClientError

_LARGEST_SEED = 1_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code."""
    options = _parse(arguments)
    console = Console(highlight=False)
    _set_up_logs(options.log)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-faults-"))
    keep = bool(options.keep)
    settings = Settings.drawn(options.seed, options.seconds)
    console.print(
        f"Breaking things for {settings.seconds:g} s with seed {settings.seed}:"
        f" {settings.partitions} partitions, segments of {settings.segment_bytes:,} bytes,"
        f" {settings.timestamp_type}, {settings.sync_delay_ms} ms for a sync"
        f" ({settings.thread_share:.0%} in threads),"
        f" a checkpoint each {settings.checkpoint_interval_ms} ms",
        soft_wrap=True,
    )

    def tell(seconds: float, text: str) -> None:
        if not options.quiet:
            console.print(f"{seconds:7.2f} s  {text}", soft_wrap=True, markup=False)

    try:
        result = asyncio.run(run(settings, folder / "data", tell))
        report(result, console)
        keep = keep or bool(result.findings)
        return 1 if result.findings else 0
    except (BrokerProcessError, ClientError) as error:
        console.print(f"The fault runner could not run: {error}", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    finally:
        if keep:
            console.print(f"The broker's data is kept in {folder / 'data'}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    seconds = float(os.environ.get("SECONDS") or 60)
    seed = int(os.environ.get("SEED") or random.randrange(_LARGEST_SEED))
    parser = argparse.ArgumentParser(prog="python -m faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=seconds, help="how long (default %(default)g)")
    parser.add_argument("--seed", type=int, default=seed, help="of the schedule (default: a random one)")
    parser.add_argument("--quiet", action="store_true", help="only the report, not each step")
    parser.add_argument("--keep", action="store_true", help="keep the data folder even without findings")
    parser.add_argument("--log", type=Path, help="write what both clients log to this file")
    return parser.parse_args(arguments)


def _set_up_logs(path: Path | None) -> None:
    """Both clients complain about every fault, as they should; here that is noise, unless asked for."""
    names = ("tidelog.client", "librdkafka")
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
