"""Whatever a peer sends, a client that behaves goes on, and what it costs is counted."""

from pathlib import Path

import pytest

from faults.checker import Kind
from faults.hostile import trial

SEED = 3


async def test_a_cost_above_its_bound_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "WAITED_CPU_MS", 0.0)
    outcome = await trial.run(SEED, 0, tmp_path, lambda text: None, attacks=1)
    assert outcome.left_out or {finding.kind for finding in outcome.findings} == {Kind.COSTLY}
