"""`python -m bench`: brokers side by side, and Python clients side by side, as ratios.

Owns the order of a run. Tidelog is measured beside Tansu's in-memory broker and a raw sink, its client beside
aiokafka, kafka-python and confluent-kafka's AIOProducer. Each round starts all targets on fresh folders and
visits every scenario, target by target, so that what disturbs the machine disturbs all alike; ratios are
taken within rounds. At the end come scale, the cost of idempotence, many groups and transactions (both beside
Apache Kafka too), the cost of ACLs, of TLS and SASL, and the pipeline on Spark.
Servers are killed by their id at the end of each round, whatever happens. Exit code 0 also when a requirement
is not held (the table says so); 1 when a server or a load failed.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench import report
from bench.loads.process import LoadError
from bench.machine import Machine
from bench.results import Results
from bench.scenarios import (
    acls,
    clients,
    compaction,
    disk,
    groups,
    memory,
    pipeline,
    requests,
    scale,
    security,
    startup,
    throughput,
    transactions,
)
from bench.targets.process import Target, TargetError
from bench.targets.sink import Sink
from bench.targets.tansu import Tansu
from bench.targets.tidelog import Tidelog
from bench.wire import WireError

RESULTS = Path(__file__).parent / "results"
TARGETS: tuple[type[Target], ...] = (Tidelog, Tansu, Sink)
_WIDTH = 200
_OF_BROKERS = ("startup", "memory", "throughput", "requests", "compaction")
SCENARIOS = (*_OF_BROKERS, "client", "scale", "groups", "transactions", "acls", "security", "pipeline")


def main(arguments: list[str] | None = None) -> int:
    """Run the bench; the exit code."""
    options = _parse(arguments)
    # SIGTERM unwinds like Ctrl-C, or the servers would outlive the bench.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A pipe has no width; the table needs this much.
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    results = Results()
    client_results = Results(clients.PEERS, clients.TITLE)
    scale_results = Results(scale.PEERS, scale.TITLE)
    groups_results = Results(groups.PEERS, groups.TITLE)
    acls_results = Results(acls.PEERS, acls.TITLE)
    security_results = Results(security.PEERS, security.TITLE)
    transactions_results = Results(transactions.PEERS, transactions.TITLE)
    pipeline_results = Results(pipeline.PEERS, pipeline.TITLE)
    RESULTS.mkdir(exist_ok=True)
    begin = time.perf_counter()
    machine = Machine()
    exit_code = 0
    # Beside the results, because the system's own folder for temporary files may be in memory.
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=RESULTS))
    try:
        for number in range(1, options.rounds + 1):
            console.print(f"round {number} of {options.rounds}", highlight=False)
            _round(results, folder / str(number), options)
            if "client" in options.only:
                clients.measure(client_results, folder / "clients", options.client_seconds)
                shutil.rmtree(folder / "clients")
        if "scale" in options.only:
            console.print("scale", highlight=False)
            scale.measure(scale_results, folder / "scale")
        if "groups" in options.only:
            console.print("groups", highlight=False)
            groups.measure(groups_results, folder / "groups")
        if "acls" in options.only:
            console.print("ACLs", highlight=False)
            acls.measure(acls_results)
        if "security" in options.only:
            console.print("TLS and SASL", highlight=False)
            seconds = options.throughput_seconds
            security.measure(security_results, folder / "security", options.rounds, seconds)
        if "transactions" in options.only:
            console.print("transactions", highlight=False)
            seconds = options.transaction_seconds
            transactions.measure(transactions_results, folder / "transactions", options.rounds, seconds)
        if "pipeline" in options.only:
            console.print("pipeline", highlight=False)
            pipeline.measure(pipeline_results, folder / "pipeline", options.rounds)
    except (TargetError, LoadError, WireError, OSError) as error:
        console.print(f"[bold red]The bench broke off[/]: {error}", highlight=False)
        exit_code = 1
    except KeyboardInterrupt:
        exit_code = 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if exit_code == 0 and "requests" in options.only:
        disk.note_ceiling(results)
    measured = (
        *(results, client_results, scale_results, groups_results),
        *(transactions_results, acls_results, security_results, pipeline_results),
    )
    tables = [table for table in measured if table.rows]
    if tables:
        tables[-1].notes.append(machine.note())
    for table in tables:
        report.show(table, console)
    if exit_code == 0:
        report.write(tables, RESULTS / "latest.json", time.perf_counter() - begin)
    console.print(f"{time.perf_counter() - begin:.0f} s", highlight=False)
    return exit_code


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--throughput-seconds", type=float, default=2.0, help="of each run, default 2")
    parser.add_argument("--request-seconds", type=float, default=1.5, help="of each run, default 1.5")
    parser.add_argument("--client-seconds", type=float, default=1.0, help="of each sending, default 1")
    parser.add_argument("--transaction-seconds", type=float, default=1.5, help="of each run, default 1.5")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=SCENARIOS, help="leave others out")
    return parser.parse_args(arguments)


def _round(results: Results, folder: Path, options: argparse.Namespace) -> None:
    if not set(_OF_BROKERS) & set(options.only):
        return
    if "startup" in options.only:
        startup.measure(results, [make(folder / f"{make.name}-start") for make in TARGETS])
    with ExitStack() as stack:
        targets = [stack.enter_context(make(folder / make.name)) for make in TARGETS]
        if "memory" in options.only:
            memory.measure(results, targets)
        if "requests" in options.only:
            disk.measure(results, folder)
            requests.measure(results, targets, options.request_seconds)
        if "throughput" in options.only:
            throughput.measure(results, targets, options.throughput_seconds)
    if "compaction" in options.only:
        compaction.measure(results, folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
