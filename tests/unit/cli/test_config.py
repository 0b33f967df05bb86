"""`tidelog config` lists what a broker would run with, and from where each value came."""

import json
from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.cli.main import main


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    lines = capsys.readouterr().out.splitlines()
    return {setting["name"]: setting for setting in map(json.loads, lines)}


def test_every_setting_is_listed_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "DEFAULT", "SOURCE", "MEANING"]
    for setting in BrokerConfig().describe():
        line = next(line for line in lines if line.startswith(f"{setting.name} "))
        assert line.endswith(setting.description)


def test_each_value_names_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('"log.roll.ms" = 1000\n"log.segment.bytes" = 1000\n')
    monkeypatch.setenv("TIDELOG_LOG_SEGMENT_BYTES", "2000")
    monkeypatch.setenv("TIDELOG_NUM_PARTITIONS", "2")
    assert main(["config", "--json", "--config", str(file), "--set", "num.partitions=3"]) == 0
    settings = listed(capsys)
    found = {name: (settings[name]["value"], settings[name]["source"]) for name in settings}
    assert found["log.roll.ms"] == ("1000", str(file))
    assert found["log.segment.bytes"] == ("2000", "TIDELOG_LOG_SEGMENT_BYTES")
    assert found["num.partitions"] == ("3", "the command line")
    assert found["message.max.bytes"] == ("1048588", "default")
