"""The report of a run's histories: a text and, of each name of anomalies, a picture.

Owns the files `history.txt` and `history-NAME.svg`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from faults.checker import Finding, Kind
from faults.histories.history import Anomaly
from faults.histories.picture import picture_of

_EXAMPLES: Final = 20


def write_report(folder: Path, facts: Iterable[str], anomalies: Sequence[Anomaly]) -> None:
    """Blocking. `facts` say what was checked."""
    counts = Counter(each.name for each in anomalies)
    lines = [*facts, "", *(f"{count} × {name}" for name, count in counts.items())]
    for name in counts:
        several = [each for each in anomalies if each.name == name]
        lines += ["", name, *(f"  {each.text}" for each in several[:_EXAMPLES])]
        drawn = next((each for each in several if each.edges), None)
        if drawn is not None:
            path = folder / f"history-{name.replace(' ', '-').replace(chr(39), '')}.svg"
            path.write_text(picture_of(drawn))
            lines.append(f"  picture: {path.name}")
    (folder / "history.txt").write_text("\n".join((*lines, "no anomaly" if not anomalies else "", "")))


def findings_of(anomalies: Iterable[Anomaly]) -> list[Finding]:
    """One for each."""
    return [Finding(Kind.ANOMALY, f"{each.name}: {each.text}") for each in anomalies]
