"""Power cuts of one broker or three under writers, on ext4: nothing acknowledged is lost.

A broker that does not sync is found. Where the system does not allow it, the trial says why.
"""

from pathlib import Path

import pytest

from faults.checker import Kind
from faults.power_cut import machine
from faults.power_cut.trial import run
from faults.process import BrokerProcess
from faults.process_tree import state_of

SEED = 7
LYING = "import os\nos.fdatasync = os.fsync = lambda fd: None\n"


@pytest.mark.parametrize("brokers", [1, 3])
async def test_what_was_acknowledged_outlives_power_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: int
) -> None:
    """Brokers are stopped before their file systems go, so that they acknowledge nothing meanwhile."""
    states = []
    kill_9 = BrokerProcess.kill_9

    async def noting_kill_9(self: BrokerProcess) -> None:
        if self.pid is not None:
            states.extend(map(state_of, machine.brokers_of(self.pid)))
        await kill_9(self)

    monkeypatch.setattr(BrokerProcess, "kill_9", noting_kill_9)
    cuts = 2 if brokers == 1 else 1
    outcome = await run(SEED, 0, tmp_path, lambda text: None, cuts, machines=brokers > 1)
    assert outcome.findings == [], f"seed {SEED}"
    cuts = 0 if outcome.left_out else cuts
    assert outcome.tried["power cut"] == cuts, outcome.left_out
    assert states == ["T"] * brokers * (cuts + bool(cuts))  # The last one is the trial's end.


async def test_a_broker_that_acknowledges_before_it_synced_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LYING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcome = await run(SEED, 0, tmp_path, lambda text: None, cuts=1)
    if not outcome.left_out:
        # What is gone from the middle of a log also fails the reading of it.
        assert {Kind.MISSING, Kind.UNREADABLE} & {finding.kind for finding in outcome.findings}


async def test_a_system_without_the_tools_is_reported_and_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "TOOLS", ("no-such-program",))
    outcome = await run(SEED, 0, tmp_path, lambda text: None, cuts=1)
    (reason,) = outcome.left_out
    assert "power cuts on a real file system" in reason
    assert (outcome.findings, outcome.tried.total()) == ([], 0)
