"""The settings of an audit: their table, and which of them contradict each other."""

from dataclasses import dataclass

from tidelog.pipeline.jobs.settings import cluster_setting
from tidelog.pipeline.offsets import OptionError
from tidelog.protocol.settings import hold_checked, setting
from tidelog.wire.cluster_config import ClusterConfig


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What to audit: `topics` of `cluster`, or the segment files below `path`; with both, the files up to the
    high watermark that the broker names. That is the way to audit the folder of a running broker."""

    topics: tuple[str, ...] = setting((), "Topics to audit. With --path and no topic: all of them.")
    cluster: ClusterConfig | None = cluster_setting(None, "Broker to read from.")
    path: str | None = setting(
        None,
        "Read the segment files below these folders, separated by commas. If you also name a broker, read up"
        " to its high watermark.",
        metavar="DIR",
    )
    output: str | None = setting(
        None, "Write the findings as Parquet to this folder. An earlier result is replaced.", metavar="DIR"
    )

    def __post_init__(self) -> None:
        hold_checked(self)

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        from tidelog.pipeline.jobs.outputs import check_folder

        if self.path is None and (self.cluster is None or not self.topics):
            raise OptionError("an audit needs topics and bootstrap servers, or a path with segment files")
        if self.output is not None:
            check_folder("output", self.output)
