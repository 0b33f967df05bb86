"""The report of a run's histories: a text and, of each name of anomalies, a picture.

Owns the files `history.txt` and `history-NAME.svg`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from math import cos, pi, sin
from pathlib import Path
from typing import Any, Final

from faults.checker import Finding, Kind
from faults.histories.history import Anomaly

_EXAMPLES: Final = 20
_WIDTH: Final = 960
_BOX: Final = (220, 34)
_RADIUS: Final = 150
_COLOURS: Final = {"ww": "#8a4b00", "wr": "#005a9c", "rw": "#a00020"}
_OTHER_COLOUR: Final = "#444444"
_LINE: Final = 18


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


def picture_of(anomaly: Anomaly) -> str:
    """Boxes on a circle, an arrow for each edge, and below the picture a line for each edge. The text of the
    anomaly is its title."""
    nodes: dict[Any, tuple[float, float]] = dict.fromkeys(
        each for edge in anomaly.edges for each in (edge.source, edge.target)
    )  # type: ignore[assignment]
    radius = _RADIUS + 22 * max(0, len(nodes) - 4)
    middle = _WIDTH / 2, radius + 90
    for index, node in enumerate(nodes):
        angle = 2 * pi * index / len(nodes) - pi / 2
        nodes[node] = middle[0] + 1.9 * radius * cos(angle), middle[1] + radius * sin(angle)
    height = int(middle[1] + radius + 60 + _LINE * len(anomaly.edges))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="12"><title>{escape(anomaly.text)}</title>'
        '<defs><marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path d="M0,0 L9,4 L0,8 z" fill="context-stroke"/></marker></defs>'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
        f'<text x="20" y="30" font-size="20">{escape(anomaly.name)}</text>'
    ]
    for number, edge in enumerate(anomaly.edges, 1):
        colour = _COLOURS.get(edge.kind, _OTHER_COLOUR)
        (x1, y1), (x2, y2) = nodes[edge.source], nodes[edge.target]
        bend = 0.12
        x, y = (x1 + x2) / 2 + bend * (y2 - y1), (y1 + y2) / 2 - bend * (x2 - x1)
        parts.append(
            f'<path d="M{x1:.0f},{y1:.0f} Q{x:.0f},{y:.0f} {x2:.0f},{y2:.0f}" fill="none" stroke="{colour}"/>'
            f'<path d="M{(x1 + 2 * x + x2) / 4 - 0.02 * (x2 - x1):.0f},'
            f"{(y1 + 2 * y + y2) / 4 - 0.02 * (y2 - y1):.0f} L{(x1 + 2 * x + x2) / 4:.0f},"
            f'{(y1 + 2 * y + y2) / 4:.0f}" stroke="{colour}" marker-end="url(#tip)"/>'
            f'<text x="{(x1 + 2 * x + x2) / 4 + 6:.0f}" y="{(y1 + 2 * y + y2) / 4 - 6:.0f}" fill="{colour}">'
            f"{number} {escape(edge.kind)}</text>"
            f'<text x="20" y="{height - _LINE * (len(anomaly.edges) - number + 1)}" fill="{colour}">'
            f"{number} {escape(edge.kind)}: {escape(edge.why)}</text>"
        )
    for node, (x, y) in nodes.items():
        parts.append(
            f'<rect x="{x - _BOX[0] / 2:.0f}" y="{y - _BOX[1] / 2:.0f}" width="{_BOX[0]}" height="{_BOX[1]}"'
            ' rx="6" fill="#f4f4f4" stroke="#222222"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle"'
            f' textLength="{min(_BOX[0] - 12, 6.2 * len(str(node))):.0f}" lengthAdjust="spacingAndGlyphs">'
            f"{escape(str(node))}</text>"
        )
    return "".join((*parts, "</svg>\n"))
