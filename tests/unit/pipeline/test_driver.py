"""Where the driver's Java cannot be reached, that is said, or nothing is read."""

import json
from pathlib import Path

import pytest

from bench.targets.process import free_port
from tidelog.pipeline.driver import read_by_driver

GATEWAY = "TIDELOG_DRIVER_GATEWAY"
URI = "viewfs://tests/checkpoint/metadata"


def test_on_another_machine_and_without_start_session_there_is_no_way_to_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(GATEWAY, raising=False)
    assert read_by_driver(URI) is None
    monkeypatch.setenv(GATEWAY, str(tmp_path / "gateway"))
    assert read_by_driver(URI) is None


def test_a_driver_that_has_ended_is_an_error_of_the_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gateway"
    path.write_text(json.dumps({"port": free_port(), "auth_token": "t"}))
    monkeypatch.setenv(GATEWAY, str(path))
    with pytest.raises(OSError, match="connect"):
        read_by_driver(URI)
