"""What a person types and asks of a real broker, and all that is shown (`scripts/`)."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import structlog

from tests.conformance.commands import typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.operator_site import OperatorSite
from tests.scripts import Case, cases

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
async def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> AsyncIterator[OperatorSite]:
    async with AsyncExitStack() as stack:
        made = OperatorSite(typist(capfd), monkeypatch, tmp_path)
        made.stack = stack
        yield made


def at(site: OperatorSite, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> OperatorSite:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", broker.address)
    site.broker = broker
    port = broker.address.rpartition(":")[2]
    site.names = {broker.address: "<broker>", port: "<port>", str(broker.data_dir): "<data>"}
    return site


@cases(*sorted(SCRIPTS.glob("*.txt")))
async def test_any_cluster(
    case: Case, rewrite: bool, broker: RunningBroker, site: OperatorSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    await case.play(at(site, broker, monkeypatch), rewrite)


@pytest.mark.one_broker("shows numbers of one broker, or asks it over raw sockets or by HTTP")
@cases(*sorted((SCRIPTS / "one_broker").glob("*.txt")))
async def test_one_broker(
    case: Case, rewrite: bool, site: OperatorSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its log would stand between the lines of the commands.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    site.stack.callback(structlog.reset_defaults)
    broker = RunningBroker(
        tmp_path / "data",
        faults_enable=True,
        transaction_two_phase_commit_enable=True,
        transaction_two_phase_commit_allowed_ids=("sink-*", "tidelog-sink.*"),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=10,
    )
    site.stack.callback(broker.stop)
    await case.play(at(site, broker, monkeypatch), rewrite)
