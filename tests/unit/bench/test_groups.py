"""The load of connections, partitions and groups does what it says to a server that works."""

import gc
import os
from pathlib import Path

import pytest

from bench.loads import groups_load
from bench.scenarios.groups import MEASURES
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig


@pytest.mark.parametrize("with_groups", [True, False])
async def test_the_load_measures_what_the_scenario_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_groups: bool
) -> None:
    for name, value in (
        ("PARTITIONS_A_TOPIC", 10),
        ("_COMMIT_S", 0.1),
    ):
        monkeypatch.setattr(groups_load, name, value)
    config = BrokerConfig(port=0, http_port=-1, data_dir=tmp_path, group_initial_rebalance_delay_ms=0)
    try:
        async with await Broker.start(config) as broker:
            numbers = await groups_load.run(broker.port, os.getpid(), 2, with_groups)
            assert len(broker.services.catalog) == 2 + with_groups
    finally:
        gc.enable()
    of_groups = {key for key, *_ in MEASURES if key.startswith(("join", "commit", "rebalance"))}
    expected = {key for key, *_ in MEASURES if not key.startswith("restart")}
    assert numbers.keys() >= (expected if with_groups else expected - of_groups)
