"""Committed offsets, lag and ends of partitions as Prometheus text, under the names of kafka_exporter.

Owns these series. They are made from memory at each scrape, in steps (`protocol.steps`): prometheus_client
needs ten times as long for them, in one piece.

Invariants:
- a family is shown whole or not at all. In the order of `FAMILIES`, those are shown that fit into
  `metrics.max.offset.series` together, and `tidelog_metrics_series_left_out` counts the others;
- `lag` says which offsets are shown, and what a lag is.

Event loop only. Source: danielqsj/kafka_exporter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.lag import lags_of
from tidelog.broker.replicas.replica import Replica
from tidelog.protocol.steps import Pace, Steps


class Family(NamedTuple):
    """A metric family: the name and the description that its series share."""

    name: str
    description: str


_MEMBERS: Final = Family("kafka_consumergroup_members", "Members of a group.")
_LAG_SUM: Final = Family("kafka_consumergroup_lag_sum", "Lag of a group in all partitions of a topic.")
_OFFSET_SUM: Final = Family(
    "kafka_consumergroup_current_offset_sum",
    "Committed offsets of a group, summed over a topic's partitions.",
)
_NEWEST: Final = Family("kafka_topic_partition_current_offset", "High watermark of a partition.")
_OLDEST: Final = Family("kafka_topic_partition_oldest_offset", "First offset of a partition.")
_LAG: Final = Family(
    "kafka_consumergroup_lag", "Records between a group's committed offset and the high watermark."
)
_OFFSET: Final = Family("kafka_consumergroup_current_offset", "Committed offset of a group in a partition.")
FAMILIES: Final = (_MEMBERS, _LAG_SUM, _OFFSET_SUM, _NEWEST, _OLDEST, _LAG, _OFFSET)
LEFT_OUT: Final = Family(
    "tidelog_metrics_series_left_out", "Series of offsets and lag above metrics.max.offset.series, not shown."
)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class OffsetMetrics(NamedTuple):
    """Makes the series of one broker's committed offsets and lags. `machines`: those that were replayed."""

    machines: Iterable[GroupMachine]
    catalog: Catalog
    replicas: Mapping[tuple[str, int], Replica]
    max_series: int

    def exposition(self) -> Steps[bytes]:
        """The series as they are now; those of one group's topic are of one moment."""
        pace = Pace()
        series = {family: _Series(family, self.max_series) for family in FAMILIES}
        newest, oldest = series[_NEWEST], series[_OLDEST]
        for (topic, index), replica in list(self.replicas.items()):
            labels = f'topic="{topic}",partition="{index}"'
            newest.add(labels, replica.high_watermark)
            oldest.add(labels, replica.log.log_start_offset)
            if pace.spent():
                yield
        for machine in self.machines:
            for group_id in machine.all_ids():
                yield from self._of_group(machine, group_id, series, pace)
        return self._text(series)

    def _of_group(
        self, machine: GroupMachine, group_id: str, series: Mapping[Family, _Series], pace: Pace
    ) -> Steps[None]:
        group = f'consumergroup="{group_id.translate(_ESCAPES)}"'
        series[_MEMBERS].add(group, machine.member_count(group_id))
        offsets, lags = series[_OFFSET], series[_LAG]
        for name, of_topic in lags_of(machine, group_id, self.catalog, self.replicas):
            lag_sum = offset_sum = 0
            is_shown, has_all_lags = False, True
            labels = f'{group},topic="{name}"'
            for partition, committed, _, lag in of_topic:
                is_shown = True
                offset = committed.offset
                offset_sum += offset
                of_partition = f'{labels},partition="{partition}"'
                offsets.add(of_partition, offset)
                if lag is None:
                    has_all_lags = False
                else:
                    lag_sum += lag
                    lags.add(of_partition, lag)
                if pace.spent():
                    yield
            if is_shown:
                if has_all_lags:
                    series[_LAG_SUM].add(labels, lag_sum)
                series[_OFFSET_SUM].add(labels, offset_sum)
        if pace.spent():
            yield

    def _text(self, series: Mapping[Family, _Series]) -> bytes:
        left, left_out = self.max_series, 0
        shown: list[str] = []
        for family, of_family in series.items():
            if of_family.count > left:
                left_out += of_family.count
                continue
            left -= of_family.count
            shown += [_head(family), *of_family.lines]
        shown += [_head(LEFT_OUT), f"{LEFT_OUT.name} {left_out}\n"]
        return "".join(shown).encode()


class _Series:
    """Collects the series of one family; at most `most` are kept and all are counted."""

    def __init__(self, family: Family, most: int) -> None:
        self.lines: list[str] = []
        self.count = 0
        self._name = family.name
        self._most = most

    def add(self, labels: str, value: int) -> None:
        self.count += 1
        if self.count <= self._most:
            self.lines.append(f"{self._name}{{{labels}}} {value}\n")


def _head(family: Family) -> str:
    return f"# HELP {family.name} {family.description}\n# TYPE {family.name} gauge\n"
