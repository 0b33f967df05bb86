"""How many processes a broker has, and the settings of each."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, ConfigError
from tidelog.broker.configuration.memory_limit import usable_cores
from tidelog.broker.configuration.process_count import process_count
from tidelog.broker.configuration.processes import of_processes


@pytest.mark.parametrize(("value", "count"), [(1, 1), ("1", 1), (" 08 ", 8), ("64", 64), ("AUTO", 6)])
def test_a_number_or_auto_is_a_number_of_processes(value: object, count: int) -> None:
    assert process_count(BrokerConfig.load({"processes": value}).processes, lambda: 6) == count


@pytest.mark.parametrize("value", ["0", "65", "-1", "two", "1.5", "", True, "²"])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="processes: expected a whole number from 1 to 64, or auto"):
        BrokerConfig.load({"processes": value})


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


def test_each_process_has_an_id_a_folder_and_ports_of_its_own() -> None:
    config = BrokerConfig.load(
        {
            "node.id": "7",
            "data.dir": "/data",
            "listeners": "OUT://0.0.0.0:9092,IN://10.0.0.1:9093,ANY://:0",
            "advertised.listeners": "OUT://broker.example.org:19092",
            "listener.security.protocol.map": "OUT:PLAINTEXT,IN:PLAINTEXT,ANY:PLAINTEXT",
        }
    )
    first, second = of_processes(config, 2)
    assert (first.node_id, str(first.data_dir)) == (7, "/data")
    assert (second.node_id, str(second.data_dir)) == (8, "/data/processes/1")
    assert first.cluster_store == second.cluster_store == "unix:/data/processes/store.sock"
    assert [each.port for each in first.listener_configs] == [9192, 9193, 0]
    assert [each.listened for each in second.listener_configs] == [
        "OUT://0.0.0.0:9292",
        "IN://10.0.0.1:9293",
        "ANY://0.0.0.0:0",
    ]
    assert [each.advertised for each in second.listener_configs] == [
        "OUT://broker.example.org:19292",
        "IN://10.0.0.1:9293",
        "ANY://:0",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": "9092", "internal.port": "9192"}, r"port 9192 for PLAINTEXT, which is INTERNAL \(9192\)"),
        ({"port": "9092", "http.port": "9292"}, r"port 9292 for PLAINTEXT, which is http.port \(9292\)"),
        ({"port": "65500"}, "port 65600 for PLAINTEXT, and a port is at most 65535"),
        ({"cluster.store": "etcd:http://a:2379"}, "cluster.store is etcd:http://a:2379"),
    ],
)
def test_ports_that_meet_and_another_store_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of_processes(BrokerConfig.load(settings), 2)
