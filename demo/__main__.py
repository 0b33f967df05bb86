"""`python -m demo`: send real events through a faulty network and prove that each is stored exactly once.

Owns the order of the steps and the exit code: 0 if neither the judge nor the audit found an error, 1 if one
of them did, 2 if the demo could not run. The judge reads over the wire and compares with the CSV; the audit
reads the segment files and uses only the sequence numbers in them.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from demo.flights import FlightsNotFoundError, load_flights
from demo.plan import FAULTS, make_plan
from demo.screen import Screen
from demo.shipment import TOPIC, SabotageError, Shipment, Site, Tally, open_site
from demo.verdict import KeyVerdict, judge, total
from faults.process import BrokerProcessError
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.spark.java import JavaNotFoundError
from tidelog.pipeline.spark.spark_session import start_session
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit code."""
    options = _parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    screen = Screen()
    try:
        return asyncio.run(_run(options, folder, screen))
    except KeyboardInterrupt:
        screen.say("interrupted")
        return 130
    except (BrokerProcessError, SabotageError, FlightsNotFoundError, JavaNotFoundError) as error:
        screen.say(f"The demo could not run: {error}")
        return 2
    finally:
        if options.keep:
            screen.say(f"The data is kept: tidelog serve --data-dir {folder / 'data'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the broker with its console running until Ctrl-C, and keep its data folder",
    )
    parser.add_argument(
        "--without-idempotence",
        action="store_true",
        help="the same faults without sequence numbers: the judge finds duplicates, exit code 1",
    )
    parser.add_argument("--events", type=int, help="ship only the first EVENTS flights")
    parser.add_argument("--faults", type=int, default=FAULTS, help="network faults (default %(default)s)")
    parser.add_argument("--seed", type=int, default=2013, help="of the plan of faults (default %(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic (default %(default)s)")
    return parser.parse_args(arguments)


async def _run(options: argparse.Namespace, folder: Path, screen: Screen) -> int:
    began = time.monotonic()
    starting_spark = asyncio.create_task(asyncio.to_thread(_start_spark, folder))
    try:
        events = await asyncio.to_thread(load_flights, limit=options.events)
        async with open_site(folder / "data") as site:
            tally = await _ship(options, site, events, screen)
            screen.say("Spark reads the topic back and compares it with the CSV ...")
            spark = await starting_spark
            verdicts = await asyncio.to_thread(_judge, spark, site.bootstrap_servers, events, folder)
            screen.verdict(verdicts)
            audited = await asyncio.to_thread(_audit, spark, site.bootstrap_servers, folder)
            await asyncio.to_thread(spark.stop)
            screen.audit(audited)
            code = _conclude(verdicts, audited, tally, time.monotonic() - began, screen)
            if options.keep:
                await until_interrupted(site, screen)
            return code
    finally:
        spark = await starting_spark
        await asyncio.to_thread(spark.stop)


async def until_interrupted(site: Site, screen: Screen) -> None:
    """Leave the broker running until Ctrl-C."""
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    screen.say(f"The broker keeps running: look at {site.console}. Ctrl-C stops it.")
    await interrupted.wait()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


async def _ship(options: argparse.Namespace, site: Site, events: pa.Table, screen: Screen) -> Tally:
    plan = make_plan(options.seed, options.faults)
    kind = "a producer WITHOUT idempotence" if options.without_idempotence else "an idempotent producer"
    screen.say(
        f"Broker on port {site.broker.port}, proxy on {site.proxy.port}:"
        f" {kind} ships {events.num_rows:,} flights past {len(plan)} faults (seed {options.seed})"
    )
    screen.say(f"Watch it in the broker's console: {site.console}")
    shipment = Shipment(
        site, plan, idempotent=not options.without_idempotence, on_change=screen.update, on_event=screen.event
    )
    await shipment.create_topic(options.partitions)
    screen.start(events.num_rows)
    try:
        tally = await shipment.ship(events)
    finally:
        screen.stop()
    rate = tally.events / tally.seconds
    screen.say(f"Shipped in {tally.seconds:.1f} s, {rate:,.0f} events/s with everything that broke:")
    screen.say(
        f"  {tally.batches:,} batches, {tally.sent_again:,} sent again,"
        f" {tally.recognised:,} of these recognised by the broker as stored already"
    )
    screen.say(
        f"  {tally.cut:,} connections cut, {tally.acks_dropped:,} acknowledgements lost,"
        f" {tally.kills} broker killed with kill -9"
    )
    return tally


def _start_spark(folder: Path) -> "SparkSession":
    settings = _SPARK_SETTINGS | {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return start_session(
        "tidelog demo", master="local[2]", settings=settings, driver_log=folder / "spark.log"
    )


def _judge(spark: "SparkSession", bootstrap_servers: str, events: pa.Table, folder: Path) -> list[KeyVerdict]:
    path = folder / "expected.parquet"
    pq.write_table(events, path)
    expected = spark.read.parquet(str(path))
    stored = (
        spark.read.format("tidelog")
        .option("bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("columns", "key,value,partition,offset")
        .load()
    )
    return judge(expected, stored)


def _audit(spark: "SparkSession", bootstrap_servers: str, folder: Path) -> audit.AuditReport:
    """The audit of the segment files, up to the high watermark that the broker names."""
    settings = AuditSettings((TOPIC,), ClusterConfig(bootstrap_servers), path=str(folder / "data"))
    return audit.run(spark, settings)


def _conclude(
    verdicts: list[KeyVerdict], audited: audit.AuditReport, tally: Tally, seconds: float, screen: Screen
) -> int:
    """Print the last line; returns the exit code."""
    sum_ = total(verdicts)
    is_exact = all(each.is_exact for each in verdicts) and sum_.expected == tally.events
    if is_exact and audited.is_clean and audited.records == sum_.stored and not tally.failed:
        screen.say(
            f"[green]{sum_.stored:,} real events, {tally.faults} faults, {tally.sent_again:,} batches"
            " sent again, a broker killed in the middle:"
            " every event is stored exactly once, unchanged and in order.[/green]"
            f" ({seconds:.0f} s in all)"
        )
        return 0
    screen.say(
        f"[red]The topic is wrong: {sum_.duplicated:,} duplicated, {sum_.missing:,} missing,"
        f" {sum_.out_of_order:,} out of order, {sum_.altered:,} altered, {sum_.invented:,} invented"
        f" of {tally.events:,} events; {tally.failed:,} deliveries failed.[/red]"
        f" ({seconds:.0f} s in all)"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
