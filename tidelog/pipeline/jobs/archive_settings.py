"""The settings of an archive: their table, and which of them contradict each other."""

from dataclasses import dataclass

from tidelog.pipeline.jobs.settings import cluster_setting
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.paths import shared_folder
from tidelog.protocol.settings import hold_checked, setting
from tidelog.wire.cluster_config import ClusterConfig

CODECS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """What to archive: `topics` of `cluster`, or of the segment files in the data folder `read_path` (up to
    the high watermark that the broker names, if one is named too), into the folder `path`."""

    topics: tuple[str, ...] = setting((), "Topics to archive.")
    cluster: ClusterConfig | None = cluster_setting(None, "Broker to read from.")
    path: str | None = setting(None, "Folder of the archive. Name the same one in each run.", metavar="DIR")
    read_path: str | None = setting(
        None,
        "Read the segment files in these data folders, separated by commas, instead of fetching.",
        metavar="DIR",
    )
    max_rows: int = setting(5_000_000, "Number of records that are committed together, about.", low=1)
    rows_per_file: int = setting(1_000_000, "Most records in one file.", low=1)
    compact: bool = setting(False, "Join small files of a date into larger ones, once all is archived.")
    interval_seconds: float | None = setting(
        None, "Continue, and look for new records at this interval. Without it the job ends.", low=0.001
    )
    compression: str = setting("zstd", f"Compression of the files: {', '.join(CODECS)}.", choices=CODECS)
    min_partitions: int | None = setting(None, "Read with at least this number of tasks.", low=1)
    isolation_level: str = setting(
        "read_uncommitted",
        "read_uncommitted, or read_committed: leave out records of aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    fail_on_data_loss: bool = setting(
        True, "Fail if offsets are missing from the log. Otherwise count them and continue."
    )

    def __post_init__(self) -> None:
        hold_checked(self)

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        if not self.topics or (self.cluster is None and self.read_path is None):
            raise OptionError(
                "an archive needs topics, and bootstrap servers or a read path with segment files"
            )
        if self.path is None:
            raise OptionError("an archive needs a path: the folder of the archive")
        shared_folder("path", self.path)
        if self.interval_seconds is not None and self.cluster is None:
            raise OptionError("interval_seconds needs bootstrap servers: only a broker says what is new")
