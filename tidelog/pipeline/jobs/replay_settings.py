"""The settings of a replay: their table, and which of them contradict each other."""

import re
from dataclasses import MISSING, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from tidelog.client.producer.config import CODECS
from tidelog.pipeline.jobs.settings import cluster_setting
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.paths import shared_folder
from tidelog.protocol.settings import hold_checked, setting
from tidelog.wire.cluster_config import ClusterConfig

_CLOCK = re.compile(
    r"\b(current_(timestamp|date|time)|localtimestamp|(now|curdate|unix_timestamp)\s*\(\s*\))", re.IGNORECASE
)
Times: TypeAlias = tuple[int | None, int | None]
"""Milliseconds since 1970: start <= timestamp < end."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What to replay: the archive in the folder `archive`, or `topics` of `from_cluster` (None: of the
    cluster that is written to), to `cluster`.

    Offsets are `start_offset` <= offset < `end_offset`, in every partition; times are UTC unless they say
    otherwise, `start_time` <= timestamp < `end_time`. An archive has a place for the session. `allow_gaps` is
    needed where offsets may be missing in what is replayed, as where transactions ended.
    """

    cluster: ClusterConfig = cluster_setting(MISSING, "Broker to write to.")
    archive: str | None = setting(None, "Replay the archive in this folder.", metavar="DIR")
    from_cluster: ClusterConfig | None = cluster_setting(
        None, "Replay topics of this broker. Without it: of the broker that is written to.", prefix="from_"
    )
    topics: tuple[str, ...] = setting((), "Topics to replay. Of an archive without a topic: all.")
    partitions: tuple[int, ...] = setting((), "Replay only this partition. May be repeated.", low=0)
    start_offset: int | None = setting(None, "Begin at this offset, in every partition.", low=0)
    end_offset: int | None = setting(None, "End before this offset, in every partition.", low=0)
    start_time: str | None = setting(
        None, "Replay records of this time and later. Write it as ISO 8601.", metavar="TIME"
    )
    end_time: str | None = setting(None, "Replay records before this time.", metavar="TIME")
    where: str | None = setting(None, "SQL condition of the records that are replayed.", metavar="SQL")
    select: str | None = setting(None, "SQL columns that each record gets.", metavar="SQL")
    to_topic: str | None = setting(
        None, "Topic to write to. Without it: the topic that each record came from.", metavar="TOPIC"
    )
    session: str | None = setting(
        None,
        "Folder of this replay. Name the same one in each run. An archive has one already.",
        metavar="DIR",
    )
    max_rows: int = setting(2_000_000, "Number of records that are replayed together, about.", low=1)
    compression_type: str = setting(
        "none", f"Compression of what is written: {', '.join(CODECS)}.", choices=CODECS
    )
    allow_gaps: bool = setting(False, "Allow that offsets are missing in what is replayed.")

    def __post_init__(self) -> None:
        hold_checked(self)

    @property
    def source(self) -> ClusterConfig:
        """The cluster whose topics are read, where no archive is."""
        return self.from_cluster or self.cluster

    @property
    def times(self) -> Times:
        """Raises OptionError for what is no time."""
        return _milliseconds("start_time", self.start_time), _milliseconds("end_time", self.end_time)

    @property
    def session_path(self) -> Path:
        """Where the replay keeps its session."""
        from tidelog.pipeline.jobs.archive_log import OWN_FOLDER

        if self.session is not None:
            return shared_folder("session", self.session)
        archive = shared_folder("archive", str(self.archive))
        return archive / OWN_FOLDER / "replays" / (self.to_topic or "_each")

    @property
    def leaves_out(self) -> bool:
        """True if offsets may be missing in what is replayed."""
        return self.allow_gaps or bool(self.where or self.start_time or self.end_time)

    def check(self) -> None:
        """Raises OptionError for settings that cannot be followed."""
        self._check_source()
        start, end = self.start_offset, self.end_offset
        if start is not None and end is not None and start >= end:
            raise OptionError(f"start_offset {start} is not before end_offset {end}")
        if _CLOCK.search(self.where or ""):
            raise OptionError(
                "where asks for the time of the run, so that another run would choose other records: write"
                " the time down, or give start_time and end_time"
            )
        start_ms, end_ms = self.times
        if start_ms is not None and end_ms is not None and start_ms >= end_ms:
            raise OptionError(f"start_time {self.start_time} is not before end_time {self.end_time}")

    def _check_source(self) -> None:
        if self.archive is not None:
            shared_folder("archive", self.archive)
            if self.from_cluster is not None:
                raise OptionError("a replay reads an archive or a broker: leave out one of both")
            return
        if not self.topics:
            raise OptionError("a replay needs an archive, or topics")
        if self.session is None:
            raise OptionError("a replay of topics needs a session: a folder for its progress")
        is_same = self.from_cluster in (None, self.cluster)
        if is_same and (self.to_topic is None or self.to_topic in self.topics):
            raise OptionError("topics would be replayed onto themselves: give to_topic another name")


def _milliseconds(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(f"{name} = {text!r}: expected a time like 2026-11-21T13:00:00") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
