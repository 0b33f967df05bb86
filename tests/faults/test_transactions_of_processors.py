"""A short run with processors in transactions: `faults.transactions.checker` finds nothing in its history."""

from pathlib import Path

from faults.transactions import trial

# A kill of the broker, a zombie that continues, connections cut after requests, a second processor.
SEED, STEPS = 316, 4
CREW = trial.Crew(("tidelog", "confluent"))


async def test_each_input_has_its_outputs_once_whatever_is_killed(tmp_path: Path) -> None:
    steps: list[str] = []
    outcome = await trial.run(SEED, 1, tmp_path, steps.append, STEPS, CREW)
    assert outcome.findings == [], f"seed {SEED}, steps {steps}"
    assert outcome.tried.total() >= STEPS
