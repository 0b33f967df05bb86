"""`tidelog cluster status`, the console and the metrics say what is wrong with the members of etcd."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from faults.etcd import EtcdMembers, running_etcd
from tests.several.full_etcd import QUOTA_BYTES, fill
from tidelog.broker.app import Broker
from tidelog.broker.cluster import etcd_health
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.console import condition, problems
from tidelog.cli.cluster import app

pytestmark = pytest.mark.needs_etcd


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_health, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(condition, "SHARED_SECONDS", 0)
    # The problems of the store only, whatever space this machine has.
    monkeypatch.setattr(problems, "_of_disk", lambda *_: ())


class Site:
    """A broker over members of etcd."""

    def __init__(self, broker: Broker, members: EtcdMembers) -> None:
        self.broker = broker
        self.members = members

    async def status(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code of the command, and the problems by name."""
        arguments = ["status", "--json", "--http", f"127.0.0.1:{self.broker.http_port}"]
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        # The broker of this process logs to the same output.
        (shown,) = (line for line in done.stdout.splitlines() if line.startswith('{"problems"'))
        return done.exit_code, {each["name"]: each for each in json.loads(shown)["problems"]}

    async def shows(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until exactly these are shown; the exit code says whether there is one."""
        async with asyncio.timeout(60):
            while True:
                code, problems = await self.status()
                if problems.keys() == set(names):
                    assert code == (1 if names else 0)
                    return problems

    def metric(self, name: str) -> dict[str, float]:
        """Values by the value of the only label."""
        families = text_string_to_metric_families(self.broker.metrics.render().decode())
        return {
            "".join(sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name
        }


@asynccontextmanager
async def site(folder: Path, count: int, *more: str) -> AsyncIterator[Site]:
    async with running_etcd(folder, count, more) as members:
        settings = {
            "data.dir": str(folder / "broker"),
            "cluster.store": members.store,
            "port": 0,
            "http.port": 0,
        }
        async with await Broker.start(BrokerConfig.load(settings)) as broker:
            yield Site(broker, members)


async def test_a_member_that_is_down_is_a_problem_until_it_is_back(tmp_path: Path) -> None:
    async with site(tmp_path, 3) as one:
        await one.shows()
        assert one.metric("tidelog_store_member_up") == dict.fromkeys(one.members.endpoints, 1)
        await one.members.kill(1)
        problem = (await one.shows("store_member_down"))["store_member_down"]
        assert f"1 of 3 members of the store do not serve: {one.members.endpoints[1]}." == problem["text"]
        assert one.metric("tidelog_store_member_up")[one.members.endpoints[1]] == 0
        await one.members.start(1)
        await one.shows()


async def test_a_store_without_space_is_a_problem_before_and_when_it_refuses_changes(tmp_path: Path) -> None:
    async with site(tmp_path, 1, f"--quota-backend-bytes={QUOTA_BYTES}") as one:
        await one.shows()
        client = EtcdClient(one.members.endpoints)
        await fill(client, 0.82)
        await one.shows("store_nearly_full")
        with pytest.raises(StoreError, match="space exceeded"):
            await fill(client)
        await client.close()
        problem = (await one.shows("store_alarm"))["store_alarm"]
        assert "NOSPACE" in problem["text"]
        assert one.metric("tidelog_store_alarm") == {"NOSPACE": 1}


async def test_members_whose_data_is_gone_lack_the_catalog_of_a_broker_that_runs(tmp_path: Path) -> None:
    async with site(tmp_path, 3) as one:
        await one.shows()
        for number in range(3):
            await one.members.kill(number)
            shutil.rmtree(tmp_path / f"m{number}")
        for number in range(3):
            await one.members.start(number)
        await one.shows("catalog_lost")
        assert one.metric("tidelog_store_catalog_lost") == {"": 1}
