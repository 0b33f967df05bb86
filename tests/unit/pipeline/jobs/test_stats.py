"""The stats job's settings: what cannot be followed is refused with the reason."""

import pytest

from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.stats_settings import StatsSettings
from tidelog.pipeline.offsets import OptionError


@pytest.mark.parametrize(
    ("text", "seconds"), [("1 second", 1), ("90seconds", 90), (" 2 hours ", 7200), ("1 week", 604_800)]
)
def test_a_window_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert StatsSettings(window=text).window_seconds == seconds


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (StatsSettings(cluster=ClusterConfig("h:1")), "need topics"),
        (StatsSettings(("t",)), "need bootstrap servers, or a path"),
        (StatsSettings(("t",), path="p", follow_seconds=1), "need bootstrap servers"),
        (StatsSettings(("t",), ClusterConfig("h:1"), path="p", follow_seconds=1), "leave out the path"),
        (StatsSettings(("t",), ClusterConfig("h:1"), window="1 month"), "'1 month' is not like"),
        (StatsSettings(("t",), ClusterConfig("h:1"), window="0 seconds"), "is not like"),
    ],
)
def test_what_cannot_be_followed_is_refused(settings: StatsSettings, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        settings.check()


def test_settings_that_can_be_followed_pass() -> None:
    StatsSettings(("t",), ClusterConfig("h:1"), follow_seconds=1).check()
    StatsSettings(("t",), path="p").check()
    StatsSettings(("t",), ClusterConfig("h:1"), path="p").check()
