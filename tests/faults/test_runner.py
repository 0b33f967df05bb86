"""A short run of the fault runner against a real broker finds nothing, and a planted loss is found."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from faults.checker import Kind, Ledger, is_acked
from faults.histories.record_rules import LOST_WRITE
from faults.readback import segment_files
from faults.runner import TOPIC, Result, Settings, judge_files, run
from tidelog.protocol.records import iter_batches


async def test_a_short_run_with_a_fixed_seed_survives_and_a_lost_batch_would_be_found(tmp_path: Path) -> None:
    steps: list[str] = []
    settings = Settings(seed=20, seconds=6, least_steps=5, checkpoint_interval_ms=100)
    result = await run(settings, tmp_path / "data", steps.append)
    assert result.findings == [], f"seed {settings.seed}, steps {steps}"
    assert sum(result.steps.values()) >= 5
    assert result.records_stored > 0
    assert result.records_followed == result.records_stored
    assert result.cleans > 0
    ledgers = (*result.ledgers, *result.keyed_ledgers)
    # The impatient writer may give up every record of a busy machine; what it says of them is judged.
    for name in {ledger.name for ledger in ledgers} - {"tidelog, impatient"}:
        assert any(ledger.count(is_acked) for ledger in ledgers if ledger.name == name), name

    _remove_an_acknowledged_batch(tmp_path / "data", result.ledgers)
    damaged = Result(settings, ledgers=result.ledgers)
    judge_files(lambda _: tmp_path / "data", damaged)
    assert Kind.GAP in {finding.kind for finding in damaged.findings}
    assert Kind.MISSING in {finding.kind for finding in damaged.findings}
    assert LOST_WRITE in {anomaly.name for anomaly in damaged.anomalies}
    assert len(result.polls) == 5
    assert len(result.looks) > 0


def _remove_an_acknowledged_batch(data_dir: Path, ledgers: Sequence[Ledger]) -> None:
    """Remove one that others follow. The first batch of a log may be of a writer that gave it up."""
    acknowledged: dict[int, list[int]] = defaultdict(list)
    for ledger in ledgers:
        for partition, fates in ledger.fates.items():
            acknowledged[partition] += [fate for fate in fates if fate >= 0]
    partition = max(acknowledged, key=lambda each: len(acknowledged[each]))
    offset = min(acknowledged[partition])
    path = [path for path in segment_files(data_dir, TOPIC, partition) if int(path.stem) <= offset][-1]
    data = path.read_bytes()
    position, header = next(
        (position, header)
        for position, header in iter_batches(data)
        if offset < header.base_offset + header.record_count
    )
    path.write_bytes(data[:position] + data[position + header.size_bytes :])
