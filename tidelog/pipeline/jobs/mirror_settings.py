"""The settings of a mirror: their table, and which of them contradict each other."""

from dataclasses import MISSING, dataclass
from pathlib import Path

from tidelog.client.producer.config import CODECS
from tidelog.pipeline.jobs.settings import cluster_setting
from tidelog.pipeline.offsets import OptionError, check_pattern
from tidelog.pipeline.paths import shared_folder
from tidelog.protocol.settings import hold_checked, setting
from tidelog.wire.cluster_config import ClusterConfig


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """What to mirror: `topics`, or all that fit `topic_pattern`, to `to_cluster` (None: to the same cluster,
    under other names).

    `rename` holds FROM=TO pairs; all other names get `prefix` before them. Missing topics are created with
    as many partitions as their source. With `trigger_seconds` the mirror takes in topics that come to fit the
    pattern. Offsets that are gone from the source before they are read end the mirror, or with
    `fail_on_data_loss` off are warned of and counted.
    """

    checkpoint: str = setting(MISSING, "Folder of this mirror. Name the same one in each run.", metavar="DIR")
    cluster: ClusterConfig = cluster_setting(MISSING, "Broker to read from.")
    topics: tuple[str, ...] = setting((), "Topics to mirror.")
    topic_pattern: str | None = setting(
        None, "Mirror all topics whose whole name fits this regular expression.", metavar="REGEX"
    )
    to_cluster: ClusterConfig | None = cluster_setting(
        None, "Broker to write to. Without it: the broker that is read.", prefix="to_"
    )
    rename: tuple[str, ...] = setting((), "New name of a topic. May be repeated.", metavar="FROM=TO")
    prefix: str = setting("", "Put this before the names of all other topics.", metavar="TEXT")
    select: str | None = setting(None, "SQL columns that each record gets.", metavar="SQL")
    where: str | None = setting(None, "SQL condition of the records that are copied.", metavar="SQL")
    max_offsets_per_trigger: int | None = setting(None, "Most records in one batch.", low=1)
    trigger_seconds: float | None = setting(
        None, "Continue, with a batch at this interval. Without it the job ends.", low=0.001
    )
    compression_type: str = setting(
        "none", f"Compression of the copies: {', '.join(CODECS)}.", choices=CODECS
    )
    isolation_level: str = setting(
        "read_uncommitted",
        "read_uncommitted, or read_committed: leave out records of aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    fail_on_data_loss: bool = setting(
        True, "Fail if offsets are missing from the source. Otherwise count them and continue."
    )

    def __post_init__(self) -> None:
        hold_checked(self)

    @property
    def target(self) -> ClusterConfig:
        """The cluster that is written to."""
        return self.to_cluster or self.cluster

    @property
    def names(self) -> dict[str, str]:
        """New names by old ones. Raises OptionError for a pair that is none."""
        pairs = [pair.partition("=") for pair in self.rename]
        if wrong := ["".join(pair) for pair in pairs if not all(pair)]:
            raise OptionError(f"rename: {wrong[0]!r} is not like FROM=TO")
        return {old.strip(): new.strip() for old, _, new in pairs}

    @property
    def session_path(self) -> Path:
        """Where the mirror keeps its session. Raises OptionError for a folder that is no path."""
        from tidelog.pipeline.options.sink import SESSION_FOLDER

        return shared_folder("checkpoint", self.checkpoint) / SESSION_FOLDER

    def copy_of(self, topic: str) -> str:
        """What the topic's copy is called."""
        return self.names.get(topic, self.prefix + topic)

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        if bool(self.topics) == bool(self.topic_pattern):
            raise OptionError("a mirror needs either topics or a topic_pattern")
        if self.topic_pattern is not None:
            check_pattern("topic_pattern", self.topic_pattern)
        if not self.checkpoint:
            raise OptionError("a mirror needs a checkpoint: a folder for its progress")
        _ = self.session_path
        if unknown := sorted(self.names.keys() - set(self.topics)) if self.topics else []:
            raise OptionError(f"rename: {unknown[0]!r} is not among the topics")
        targets = [self.copy_of(topic) for topic in self.topics]
        if len(set(targets)) < len(targets):
            raise OptionError("two topics would have the same copy: give each a name of its own")
