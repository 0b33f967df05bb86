"""The source's options: Spark's texts in, `SourceOptions` out.

Owns the parsing, which is pure. Names and meaning are those of Spark's own Kafka source, so that a job moves
by changing its format. If that source would silently read less than was asked for, this one refuses.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidelog.pipeline.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    OptionError,
    Place,
    Positions,
    check_pattern,
    to_json,
)
from tidelog.pipeline.options import common
from tidelog.pipeline.options.tables import FOREIGN_TO_SOURCE
from tidelog.pipeline.options.tables import SOURCE_OPTIONS as OPTIONS
from tidelog.pipeline.schema import COLUMNS
from tidelog.wire.cluster_config import ClusterConfig

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_DELAY = re.compile(r"(\d+)(ms|s|m|min|h)?")
_UNITS_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_CLIENT_ID = "tidelog-pipeline"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read. Exactly one of `topics`, `assigned` and `pattern` is set, and at least one of
    `cluster` and `read_paths`.

    A position is EARLIEST or LATEST for all partitions, or an offset (or one of the two) for each. Times, in
    milliseconds, for all partitions or for each, go before positions where they are given. A partition that
    holds no record as young as the starting time is an error, or read from its end on (`starts_at_end`).
    """

    cluster: ClusterConfig | None
    topics: tuple[str, ...] | None
    assigned: tuple[Place, ...] | None
    starting: Positions
    ending: Positions
    min_partitions: int | None
    columns: tuple[str, ...]
    pattern: str | None
    starting_times: Positions | None
    ending_times: Positions | None
    starts_at_end: bool
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    read_committed: bool
    read_paths: tuple[str, ...]
    losses_path: str | None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 0
    max_records_per_partition: int | None = None
    max_partitions_per_task: int | None = None
    commit_group_id: str = ""
    remote: tuple[str, ...] | None = None
    """URL, endpoint and region of remote storage."""


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a batch read; names in any case, with or without Spark's `kafka.` prefix.

    Raises OptionError for an unknown name, a missing or a contradictory value.
    """
    given = _known(options)
    starting = _parse_positions("startingOffsets", _text(given, "startingOffsets"))
    ending = _parse_positions("endingOffsets", _text(given, "endingOffsets"))
    _refuse(starting, LATEST, "startingOffsets", "latest would read nothing in a batch; use earliest")
    _refuse(ending, EARLIEST, "endingOffsets", "earliest would read nothing; use latest")
    return _options(given, starting, ending)


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a stream, which starts at the latest offsets by default.

    Raises OptionError as `parse_options`, and for options that would end the stream.
    """
    given = _known(options)
    for name in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"):
        if name in given:
            raise OptionError(
                f"{name}: a stream has no end. Use trigger(availableNow=True) to stop at the current end"
            )
    starting = _parse_positions("startingOffsets", given.get("startingoffsets", "latest"))
    chosen = _options(given, starting, LATEST)
    least, most = chosen.min_offsets_per_trigger, chosen.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    return chosen


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options ask for, all if none.

    Raises OptionError for every option that neither a batch nor a stream can have, so that Spark's `load`
    fails and not a later step.
    """
    given = _known(options)
    starting = _parse_positions("startingOffsets", _text(given, "startingOffsets"))
    ending = _parse_positions("endingOffsets", _text(given, "endingOffsets"))
    return _options(given, starting, ending).columns


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their name in small letters, without Spark's prefix and those that Spark adds."""
    given = common.read_options(options, OPTIONS, FOREIGN_TO_SOURCE)
    if not given.get("bootstrap.servers") and not given.get("read.path"):
        raise common.no_servers()
    if sum(name in given for name in ("subscribe", "assign", "subscribepattern")) != 1:
        raise OptionError(
            "give either subscribe (topics, separated by commas), assign (JSON) or subscribePattern"
            " (a regular expression)"
        )
    if "subscribepattern" in given:
        check_pattern("subscribePattern", given["subscribepattern"])
    return given


def _options(given: Mapping[str, str], starting: Positions, ending: Positions) -> SourceOptions:
    choice = partial(common.choice_of, given, OPTIONS)
    for name in ("commit.group.id", "remote.storage.url"):
        if given.get(name) and not given.get("bootstrap.servers"):
            raise OptionError(f"{name}: give bootstrap.servers too, of the brokers that know the topics")
    remote = tuple(given.get(f"remote.storage.{name}", "") for name in ("url", "endpoint", "region"))
    return SourceOptions(
        cluster=common.read_cluster(given, client_id=_CLIENT_ID),
        topics=_parse_topics(given["subscribe"]) if "subscribe" in given else None,
        assigned=_parse_assignment(given["assign"]) if "assign" in given else None,
        starting=starting,
        ending=ending,
        min_partitions=_count(given, "minPartitions"),
        columns=_columns(given),
        pattern=given.get("subscribepattern"),
        starting_times=_parse_times("starting", given),
        ending_times=_parse_times("ending", given),
        starts_at_end=choice("startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
        max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        fail_on_data_loss=choice("failOnDataLoss", "true", "false") == "true",
        read_committed=choice("isolation.level", "read_uncommitted", "read_committed") == "read_committed",
        read_paths=parse_paths(given.get("read.path", "")),
        losses_path=given.get("losses.path") or None,
        min_offsets_per_trigger=_count(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_parse_delay(_text(given, "maxTriggerDelay")),
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        max_partitions_per_task=_count(given, "maxPartitionsPerTask"),
        commit_group_id=given.get("commit.group.id", ""),
        remote=remote if remote[0] else None,
    )


def _text(given: Mapping[str, str], name: str) -> str:
    return common.text_of(given, OPTIONS, name)


def _refuse(positions: Positions, word: int, option: str, reason: str) -> None:
    if positions == word or (not isinstance(positions, int) and word in positions.values()):
        raise OptionError(f"{option}: {reason}")


def _parse_positions(option: str, text: str) -> Positions:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    example = '{"topic":{"0":23,"1":-2}}'
    try:
        return {
            Place(topic, int(partition)): _offset(offset)
            for topic, partitions in _json_object(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(
            f"{option}: {text!r} is neither earliest nor latest nor JSON like {example} ({error})"
        ) from None


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value


def options_of_ranges(ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """The options of a batch that reads exactly these ranges, at most one per partition."""
    assigned: dict[str, list[int]] = {}
    starts, ends = {}, {}
    for each in ranges:
        assigned.setdefault(each.topic, []).append(each.partition)
        starts[each.place], ends[each.place] = each.start, each.end
    values = {"assign": assigned, "startingOffsets": to_json(starts), "endingOffsets": to_json(ends)}
    return {name: json.dumps(value) for name, value in values.items()}


def _parse_topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",")))
    if not all(topics):
        raise OptionError(f"subscribe: {text!r} contains an empty topic name")
    return topics


def parse_paths(text: str) -> tuple[str, ...]:
    """The folders of read.path, in their order. Raises OptionError."""
    paths = tuple(dict.fromkeys(path.strip() for path in text.split(",")))
    if text and not all(paths):
        raise OptionError(f"read.path: {text!r} contains an empty path; commas separate folders")
    return paths if text else ()


def _parse_assignment(text: str) -> tuple[Place, ...]:
    try:
        places = [
            Place(topic, _offset(partition))
            for topic, partitions in _json_object(text).items()
            for partition in partitions
        ]
    except (ValueError, TypeError) as error:
        raise OptionError(f'assign: {text!r} is not JSON like {{"topic":[0,1]}} ({error})') from None
    if not places or min(place.partition for place in places) < 0:
        raise OptionError(f"assign: {text!r} must name partitions, and none below 0")
    return tuple(dict.fromkeys(places))


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _count(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    return None if text is None else common.count_of(option, text)


def _parse_delay(text: str) -> int:
    match = _DELAY.fullmatch(text.lower())
    if match is None:
        raise OptionError(f"maxTriggerDelay: {text!r} is not a number with the unit ms, s, m or h")
    return int(match[1]) * _UNITS_MS[match[2]]


def _parse_times(edge: str, given: Mapping[str, str]) -> Positions | None:
    """One timestamp for all partitions goes before one for each, as in Spark."""
    if (text := given.get(f"{edge}timestamp")) is not None:
        if not text.isdecimal():
            raise OptionError(f"{edge}Timestamp: {text!r} is not a number of milliseconds")
        return int(text)
    if (text := given.get(f"{edge}offsetsbytimestamp")) is None:
        return None
    option = f"{edge}OffsetsByTimestamp"
    times = _parse_positions(option, text)
    if isinstance(times, int) or min(times.values(), default=0) < 0:
        raise OptionError(f'{option}: {text!r} is not JSON like {{"topic":{{"0":1700000000000}}}}')
    return times


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """All columns by default. In Spark's own source, headers are off by default."""
    with_headers = common.choice_of(given, OPTIONS, "includeHeaders", "true", "false") == "true"
    if (text := given.get("columns")) is None:
        return tuple(name for name in COLUMNS if with_headers or name != "headers")
    by_name = {name.lower(): name for name in COLUMNS}
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in by_name or names.count(name) > 1:
            raise OptionError(f"columns: {name!r} is named twice, or is not one of {', '.join(COLUMNS)}")
    return tuple(by_name[name] for name in names)
