"""The demo in small: with sequence numbers judge and audit find nothing, without them the judge does."""

import asyncio
import os
import signal
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from demo.__main__ import until_interrupted
from demo.flights import load_flights
from demo.plan import Kind, make_plan
from demo.screen import Screen
from demo.shipment import TOPIC, Shipment, Tally, open_site
from demo.verdict import KeyVerdict, judge, total
from tests.waiting import until
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings

EVENTS = 8_000
FAULTS = 10


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights(limit=EVENTS)


async def run(
    spark: SparkSession, folder: Path, events: pa.Table, faults: int, *, idempotent: bool
) -> tuple[Tally, list[KeyVerdict], audit.AuditReport | None, list[str]]:
    """Ship and judge, and audit what has sequence numbers: the tally, what both say, and the lines about
    faults.
    """
    lines: list[str] = []
    async with open_site(folder / "data") as site:
        shipment = Shipment(
            site,
            make_plan(2013, faults),
            idempotent=idempotent,
            on_change=lambda tally: None,
            on_event=lines.append,
        )
        await shipment.create_topic(3)
        tally = await shipment.ship(events)
        verdicts = await asyncio.to_thread(judge_topic, spark, site.bootstrap_servers, events, folder)
        settings = AuditSettings((TOPIC,), ClusterConfig(site.bootstrap_servers), path=str(folder / "data"))
        audited = await asyncio.to_thread(audit.run, spark, settings) if idempotent else None
    return tally, verdicts, audited, lines


def judge_topic(
    spark: SparkSession, bootstrap_servers: str, events: pa.Table, folder: Path
) -> list[KeyVerdict]:
    pq.write_table(events, folder / "expected.parquet")
    options = {"bootstrap.servers": bootstrap_servers, "subscribe": TOPIC}
    stored = spark.read.format("tidelog").options(**options).load()
    return judge(spark.read.parquet(str(folder / "expected.parquet")), stored)


async def test_every_event_is_stored_once_in_order_whatever_breaks(
    spark: SparkSession, tmp_path: Path, flights: pa.Table
) -> None:
    tally, verdicts, audited, lines = await run(spark, tmp_path, flights, FAULTS, idempotent=True)
    assert [each for each in verdicts if not each.is_exact] == []
    assert total(verdicts).stored == EVENTS
    assert audited is not None
    assert audited.is_clean
    assert (audited.records, audited.unidentified, audited.producers) == (EVENTS, 0, 1)
    assert (tally.acked, tally.failed, tally.kills, tally.faults) == (EVENTS, 0, 1, FAULTS + 1)
    assert tally.cut >= FAULTS
    assert tally.sent_again > 0
    assert len(lines) == FAULTS + 1
    assert any(f"{Kind.KILL.value}: 5 requests" in line for line in lines)


async def test_without_sequence_numbers_the_judge_finds_the_duplicates(
    spark: SparkSession, tmp_path: Path, flights: pa.Table
) -> None:
    few = flights.slice(0, EVENTS // 2)
    tally, verdicts, _, _ = await run(spark, tmp_path, few, FAULTS // 2, idempotent=False)
    assert total(verdicts).duplicated > 0
    assert total(verdicts).missing == 0
    assert tally.failed == 0


async def test_a_demo_that_is_kept_names_its_page_and_ends_with_control_c() -> None:
    out = StringIO()
    site: Any = SimpleNamespace(console="http://127.0.0.1:9644/console")
    kept = asyncio.create_task(until_interrupted(site, Screen(Console(file=out))))
    await until(lambda: "look at http://127.0.0.1:9644/console" in out.getvalue())
    assert not kept.done()
    os.kill(os.getpid(), signal.SIGINT)
    await kept
