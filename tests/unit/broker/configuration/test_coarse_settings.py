"""Hours and minutes of Kafka's older settings are milliseconds here."""

from pathlib import Path

import pytest

from tidelog.broker.configuration.broker_config import BrokerConfig, unknown_variables
from tidelog.broker.configuration.coarse_settings import COARSE_SETTINGS
from tidelog.protocol.settings import ConfigError


def test_each_of_them_sets_the_one_that_it_stands_for() -> None:
    names = {line.name for line in BrokerConfig().describe()}
    for name, (stands_for, unit_ms) in COARSE_SETTINGS.items():
        assert stands_for in names
        assert name not in names
        config = BrokerConfig.load({name: "3"})
        assert getattr(config, stands_for.replace(".", "_")) == 3 * unit_ms
    assert BrokerConfig.load({"log.retention.hours": "-1"}).log_retention_ms == -1


def test_of_one_source_the_finest_counts_and_a_stronger_source_counts_before_it(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('"log.retention.hours" = 1\n"log.retention.minutes" = 2\n"log.roll.hours" = 5\n')
    assert BrokerConfig.load(file=file).log_retention_ms == 120_000
    assert BrokerConfig.load(file=file).log_roll_ms == 5 * 3_600_000
    environ = {"TIDELOG_LOG_RETENTION_HOURS": "4"}
    assert BrokerConfig.load(file=file, environ=environ).log_retention_ms == 4 * 3_600_000
    assert unknown_variables(environ) == {}
    environ["TIDELOG_LOG_RETENTION_MS"] = "9"
    assert BrokerConfig.load(file=file, environ=environ).log_retention_ms == 9
    assert BrokerConfig.load({"log_retention_hours": 6}, environ=environ).log_retention_ms == 6 * 3_600_000


@pytest.mark.parametrize("value", ["soon", "1.5", True])
def test_what_is_no_number_is_refused_by_the_name_that_was_given(value: object) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.hours: expected a whole number"):
        BrokerConfig.load({"log.retention.hours": value})
