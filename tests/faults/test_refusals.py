"""librdkafka keeps its epoch while brokers refuse what it has in flight; without the rule it raises it."""

import sys
from pathlib import Path

import pytest

from faults.refusals import refusals

WITHOUT_THE_RULE = (
    sys.executable,
    "-c",
    "from tidelog.broker.storage.refused_batches import RefusedBatches\n"
    "RefusedBatches.code_before = lambda *_: None\n"
    "import runpy\n"
    "runpy.run_module('tidelog.broker', run_name='__main__')",
)
MOST_FAULTS = 20


@pytest.mark.needs_etcd
async def test_no_producer_raises_its_epoch_or_stores_twice(tmp_path: Path) -> None:
    async with refusals(tmp_path) as made:
        for number, kind in enumerate(("full", "full", "full", "stop", "full")):
            await made.fault(kind, number)
        assert await made.end() == []
    assert made.refused["KAFKA_STORAGE_ERROR"] > 0
    assert made.bumps.count == 0
    assert made.job.oddities == {}


@pytest.mark.needs_etcd
async def test_without_the_rule_producers_raise_their_epochs(tmp_path: Path) -> None:
    async with refusals(tmp_path, WITHOUT_THE_RULE) as made:
        for number in range(MOST_FAULTS):
            await made.fault("full", number)
            if made.bumps.count:
                break
        assert any("raised its epoch" in finding.text for finding in await made.end())
    assert made.bumps.count > 0
