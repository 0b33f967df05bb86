"""`python -m bench`: the README's table, Tidelog beside Kafka, in less than 40 minutes.

`--only` measures others: share groups, Python clients side by side, several brokers, the pipeline on Spark.

Owns the order of a run and its file of results, which is written again after each scenario; of scenarios that
a run leaves out it keeps the results of earlier runs. A scenario that
fails does not end the run. Servers are killed by their id at the end of each scenario, also after an error.
Exit code 0, also when a requirement is not met (the table shows it); 1 when a scenario failed.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import machine, report
from bench.comparison import FAILURES, Run
from bench.results import Results
from bench.scenarios import brokers, clients, pipeline, processes, startup
from bench.scenarios.fast_paths import FAST_PATHS
from bench.scenarios.replicas import REPLICAS

RESULTS = Path(__file__).parent / "results"
LATEST = RESULTS / "latest.json"
_WIDTH = 320


BESIDE_KAFKA: dict[str, Callable[[Run], Results]] = {
    "startup": startup.measure,
    "raw": brokers.RAW,
    "raw-consume": brokers.RAW_CONSUME,
    "requests": brokers.REQUESTS,
    "throughput": brokers.THROUGHPUT,
    "consume": brokers.CONSUME,
    "java": brokers.JAVA,
    "partitions": brokers.PARTITIONS,
}
"""The table of the README."""
SCENARIOS: dict[str, Callable[[Run], Results]] = {
    **BESIDE_KAFKA,
    "latency": brokers.LATENCY,
    "share": brokers.SHARE,
    "fast-paths": FAST_PATHS,
    "processes": processes.measure,
    "replicas": REPLICAS,
    "client": clients.measure,
    "pipeline": pipeline.measure,
    "transactions": brokers.TRANSACTIONS,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the bench; the exit code."""
    options = _parse(arguments)
    # SIGTERM unwinds like Ctrl-C, or the servers would outlive the bench.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A pipe has no width; the table needs this much.
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    RESULTS.mkdir(exist_ok=True)
    begin, watch = time.perf_counter(), machine.Watch()
    tables: dict[str, Results] = {}
    failures: dict[str, str] = {}
    # Beside the results, because the system's own folder for temporary files may be in memory.
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=RESULTS))
    about = {"machine": machine.describe(folder), "rounds": options.rounds, "failures": failures}
    try:
        for name in options.only:
            started = time.perf_counter()
            try:
                tables[name] = _measured(name, folder / name, options)
            except FAILURES as error:
                failures[name] = str(error)
                console.print(f"[bold red]{name} failed[/]: {error}", highlight=False)
                continue
            report.write(tables, LATEST, about | {"seconds": round(time.perf_counter() - begin)})
            report.show(tables[name], console)
            console.print(f"{name}: {time.perf_counter() - started:.0f} s", highlight=False)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    taken, share = time.perf_counter() - begin, watch.others_share()
    console.print(f"{taken:.0f} s; other programs took {share:.0%} of the processors", highlight=False)
    return 1 if failures else 0


def _measured(name: str, folder: Path, options: argparse.Namespace) -> Results:
    folder.mkdir()
    try:
        return SCENARIOS[name](Run(folder, options.rounds, options.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn, default 2")
    parser.add_argument(
        "--only", nargs="+", choices=SCENARIOS, default=BESIDE_KAFKA, help="default: the README's table"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
