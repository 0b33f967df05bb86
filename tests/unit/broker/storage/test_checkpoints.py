"""Kafka's text checkpoints: written as Kafka writes them, read with suspicion."""

from pathlib import Path
from uuid import uuid4

import pytest

from tidelog.broker.storage.checkpoints import (
    CheckpointError,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from tidelog.broker.storage.disk import Disk


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {("b", 1): 5, ("a-b.c_d", 10): 0, ("a-b.c_d", 9): 1 << 40}
    write_offsets(Disk(), path, offsets)
    assert path.read_text() == f"0\n3\na-b.c_d 9 {1 << 40}\na-b.c_d 10 0\nb 1 5\n"
    assert read_offsets(Disk(), path) == offsets


def test_leader_epochs_come_back(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    write_leader_epochs(Disk(), path, [(0, 0), (3, 7), (9, 7)])
    assert path.read_text() == "0\n3\n0 0\n3 7\n9 7\n"
    assert read_leader_epochs(Disk(), path) == [(0, 0), (3, 7), (9, 7)]


def test_the_topic_id_comes_back(tmp_path: Path) -> None:
    for topic_id in (uuid4() for _ in range(20)):
        write_topic_id(Disk(), tmp_path, topic_id)
        assert read_topic_id(Disk(), tmp_path) == topic_id


def test_no_file_is_no_entry(tmp_path: Path) -> None:
    assert read_offsets(Disk(), tmp_path / "none") == {}
    assert read_leader_epochs(Disk(), tmp_path / "none") == []
    assert read_topic_id(Disk(), tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "0\n", "1\n0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n"),
        *("0\n1\na b 1\n", "\xff", "0\n1\na 0 12", "0\n1\na 0 -1\n"),
    ],
)
def test_what_kafka_would_not_write_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=str(path)):
        read_offsets(Disk(), path)


@pytest.mark.parametrize("text", ["0\n2\n1 0\n1 5\n", "0\n2\n1 5\n2 4\n", "0\n1\n1 2 3\n"])
def test_epochs_that_do_not_ascend_are_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "epochs"
    path.write_text(text)
    with pytest.raises(CheckpointError):
        read_leader_epochs(Disk(), path)


@pytest.mark.parametrize(
    "text", ["\n", "version: 1\ntopic_id: AAAA", "version: 0\n", "version: 0\ntopic_id: AAAA"]
)
def test_metadata_that_names_no_topic_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CheckpointError):
        read_topic_id(Disk(), tmp_path)


@pytest.mark.parametrize("size", [0, 43])
def test_empty_metadata_is_what_a_power_cut_leaves_of_a_new_folder(tmp_path: Path, size: int) -> None:
    (tmp_path / "partition.metadata").write_bytes(bytes(size))
    assert read_topic_id(Disk(), tmp_path) is None
