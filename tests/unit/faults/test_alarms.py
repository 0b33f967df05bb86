"""Which log lines of a broker are findings of a fault run."""

import json
from pathlib import Path

from faults.process import BrokerProcess
from faults.runner import alarms


def _broker(*events: dict[str, object]) -> BrokerProcess:
    broker = BrokerProcess(Path())
    broker.log_lines.extend(json.dumps({"topic": "t", "level": "error", **event}) for event in events)
    return broker


def test_a_refused_duplicate_is_a_finding_unless_the_start_of_its_log_was_in_doubt() -> None:
    refused = [{"event": "duplicate_refused", "partition": partition} for partition in (0, 1)]
    moved = {"event": "log_start_moved", "partition": 0, "level": "warning"}

    (finding,) = alarms(_broker(moved, *refused))

    assert json.loads(finding.text)["partition"] == 1


def test_a_missing_topic_id_is_a_finding_unless_disks_fail() -> None:
    broker = _broker({"event": "partition_metadata_missing"})

    assert len(alarms(broker)) == 1
    assert alarms(broker, disks_fail=True) == []
