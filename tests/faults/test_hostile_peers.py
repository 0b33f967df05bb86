"""Whatever a peer sends, a client that behaves goes on, and what it costs is counted."""

from pathlib import Path

import pytest

from faults.checker import Kind
from faults.hostile import trial
from faults.hostile.attacks import ATTACKS

SEED = 3
# Each kind of attack once, and as many of the largest requests.
_ATTACKS = 2 * len(ATTACKS)


async def test_a_cost_above_its_bound_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "WAITED_CPU_MS", 0.0)
    outcome = await trial.run(SEED, 0, tmp_path, lambda text: None, attacks=1)
    assert outcome.left_out or {finding.kind for finding in outcome.findings} == {Kind.COSTLY}


async def test_a_client_that_behaves_goes_on_whatever_others_send(tmp_path: Path) -> None:
    outcome = await trial.run(SEED, 0, tmp_path, lambda text: None, attacks=_ATTACKS)
    assert outcome.findings == [], f"seed {SEED}"
    assert outcome.tried.total() == (0 if outcome.left_out else _ATTACKS)
