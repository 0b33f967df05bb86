"""What clients pushed as Prometheus text.

Owns the names and labels of these series. A series has the client's id and software, and what the client says
that it is about (`metrics_data.LABELS`), but no id of its instance, which is another one after each start. So
clients with the same id share a series: their counters and rates are added, of other values the largest is
shown.

Source: KIP-714, whose names begin with org.apache.kafka.
"""

import re
from collections.abc import Iterable
from typing import Final

from tidelog.broker.telemetry.client_instances import Instance
from tidelog.protocol.steps import Pace, Steps

_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_SUMMED: Final = (".rate", ".total", ".count")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
PREFIX: Final = "kafka_client_"
INSTANCES: Final = "tidelog_client_telemetry_instances"
LEFT_OUT: Final = "tidelog_client_telemetry_series_left_out"


def exposition(instances: Iterable[Instance]) -> Steps[bytes]:
    """The series of these clients, in steps."""
    pace = Pace()
    families: dict[str, _Family] = {}
    count = left_out = 0
    for instance in instances:
        count += 1
        left_out += instance.left_out
        client = instance.client
        software = f"{client.client_software_name} {client.client_software_version}".strip()
        own = f'client_id="{_escaped(client.client_id)}",client_software="{_escaped(software)}"'
        for series, value in instance.series.items():
            family = families.get(series.name)
            if family is None:
                family = families[series.name] = _Family(series.name, value.is_counter)
            labels = "".join(f',{name}="{_escaped(text)}"' for name, text in series.labels)
            family.add(own + labels, value.number)
            if pace.spent():
                yield
    lines = [
        f"# HELP {INSTANCES} Clients that asked for their telemetry subscription lately.\n",
        f"# TYPE {INSTANCES} gauge\n{INSTANCES} {count}\n",
        f"# HELP {LEFT_OUT} Series of clients above metrics.max.client.series, not shown.\n",
        f"# TYPE {LEFT_OUT} gauge\n{LEFT_OUT} {left_out}\n",
    ]
    named: dict[str, _Family] = {}
    for family in families.values():
        if named.setdefault(family.outward, family) is family:  # Two names of clients may look alike.
            lines += family.lines()
        if pace.spent(1 + len(family.values)):
            yield
    return "".join(lines).encode()


class _Family:
    """One metric of all clients."""

    def __init__(self, name: str, is_counter: bool) -> None:
        self.outward = PREFIX + _NO_NAME.sub("_", name.removeprefix("org.apache.kafka."))
        self._name = name
        self._kind = "counter" if is_counter else "gauge"
        self._is_summed = is_counter or name.endswith(_SUMMED)
        self.values: dict[str, float] = {}

    def add(self, labels: str, number: float) -> None:
        before = self.values.get(labels)
        if before is not None:
            number = before + number if self._is_summed else max(before, number)
        self.values[labels] = number

    def lines(self) -> Iterable[str]:
        help_text = self._name.translate(_ESCAPES)
        yield f"# HELP {self.outward} Pushed by clients: {help_text}.\n# TYPE {self.outward} {self._kind}\n"
        for labels, number in self.values.items():
            yield f"{self.outward}{{{labels}}} {number!r}\n"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
