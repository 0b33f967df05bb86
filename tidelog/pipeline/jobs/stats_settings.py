"""The settings of the stats: their table, and which of them contradict each other."""

import re
from dataclasses import dataclass

from tidelog.pipeline.jobs.settings import cluster_setting
from tidelog.pipeline.offsets import OptionError
from tidelog.protocol.settings import hold_checked, setting
from tidelog.wire.cluster_config import ClusterConfig

_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_LONGEST_WINDOW = 36_500 * 86_400


@dataclass(frozen=True, slots=True)
class StatsSettings:
    """What to measure: `topics` of `cluster`, or of the segment files in the data folder `path`, up to the
    high watermark that the broker names (none is needed where it has shut down)."""

    topics: tuple[str, ...] = setting((), "Topics to measure.")
    cluster: ClusterConfig | None = cluster_setting(None, "Broker to read from.")
    path: str | None = setting(
        None,
        "Read the segment files in these data folders, separated by commas, instead of fetching.",
        metavar="DIR",
    )
    window: str = setting("1 minute", 'Length of a window, for example "10 seconds" or "2 hours".')
    follow_seconds: int | None = setting(
        None, "Watch what arrives in this time, instead of what is in the topic.", low=1
    )
    output: str | None = setting(
        None, "Write the windows as Parquet to this folder. An earlier result is replaced.", metavar="DIR"
    )
    plot: str | None = setting(None, "Draw throughput, sizes and lag into this PNG file.", metavar="FILE")

    def __post_init__(self) -> None:
        hold_checked(self)

    @property
    def window_seconds(self) -> int:
        """Raises OptionError if `window` is none."""
        match = re.fullmatch(r"([1-9]\d{0,8}) *(second|minute|hour|day|week)s?", self.window.strip())
        if match is None:
            raise OptionError(f'window: {self.window!r} is not like "10 seconds", "1 minute" or "2 hours"')
        seconds = int(match[1]) * _UNITS[match[2]]
        if seconds > _LONGEST_WINDOW:
            raise OptionError(f"window: {self.window!r} is longer than {_LONGEST_WINDOW // 86_400} days")
        return seconds

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        from tidelog.pipeline.jobs.outputs import check_file, check_folder

        if not self.topics:
            raise OptionError("stats need topics")
        if self.cluster is None and (self.path is None or self.follow_seconds is not None):
            raise OptionError(
                "stats need bootstrap servers, or a path with segment files that is not followed"
            )
        if self.path is not None and self.follow_seconds is not None:
            raise OptionError("follow_seconds watches a broker: leave out the path")
        _ = self.window_seconds
        if self.output is not None:
            check_folder("output", self.output)
        if self.plot is not None:
            check_file("plot", self.plot)
