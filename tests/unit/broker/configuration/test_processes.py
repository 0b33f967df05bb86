"""How many processes a broker has, and the settings of each."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.memory_limit import usable_cores
from tidelog.broker.configuration.process_count import process_count


@pytest.mark.parametrize(("value", "count"), [(1, 1), ("1", 1), (" 08 ", 8), ("64", 64), ("AUTO", 6)])
def test_a_number_or_auto_is_a_number_of_processes(value: object, count: int) -> None:
    assert process_count(BrokerConfig.load({"processes": value}).processes, lambda: 6) == count


def test_auto_counts_the_cores_that_the_control_group_allows(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    group = tmp_path / "sys/fs/cgroup/some"
    group.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/some\n")
    unlimited = usable_cores(tmp_path)
    for text, cores in (
        ("max 100000", unlimited),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("", unlimited),
    ):
        (group / "cpu.max").write_text(f"{text}\n")
        assert usable_cores(tmp_path) == cores
