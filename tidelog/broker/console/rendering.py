"""Pages from templates; names and records become text, whatever they contain.

Owns the Jinja environment. Invariants: each value in a page is escaped; characters that a browser hides,
reorders or reports (control characters, marks of direction, halves of surrogate pairs) are shown as escapes
such as \\u202e. A template that means the exact text, in an attribute, says `|exact`. A misspelt name in a
template is an error.
"""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tidelog.broker.console.records.shown_values import indented

_TEMPLATES: Final = Path(__file__).with_name("templates")
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff0-\uffff\U000e0000-\U000e0fff]"
)
_SPARK_WIDTH: Final = 72
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def visible(text: str) -> str:
    """`text` with escapes for the characters that a page would not show as they are."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def exact(text: str) -> Markup:
    """The text as it is, for an attribute such as the value of an input."""
    return escape(text)


def size(value: int | None) -> str:
    """A number of bytes for people: 1.5 MiB."""
    if value is None:
        return "unknown"
    number, unit = float(value), _UNITS[0]
    for unit in _UNITS:
        if abs(number) < 1024 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{value} B" if unit == "B" else f"{number:.1f} {unit}"


def count(value: int | None) -> str:
    """A whole number with a thin space between thousands."""
    return "unknown" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def moment(value_ms: int | None) -> str:
    """A time in milliseconds since the epoch, as UTC."""
    if value_ms is None or value_ms < 0:
        return "none"
    try:
        at = datetime.fromtimestamp(value_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{value_ms} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}Z"


def ago(value_ms: int | None) -> str | Markup:
    """A time in milliseconds since the epoch as how long ago it was; the exact time on hover."""
    if value_ms is None or value_ms < 0:
        return "none"
    span_ms = round(time.time() * 1000) - value_ms
    text = f"{duration(span_ms)} ago" if span_ms >= 1000 else "just now"
    text = text if span_ms > -60_000 else moment(value_ms)
    return Markup('<time title="{exact}">{text}</time>').format(exact=moment(value_ms), text=text)


def rate(value: float) -> str:
    """Bytes per second: 1.5 MiB/s; empty for none."""
    return f"{size(round(value))}/s" if value else ""


def spark(values: Sequence[float]) -> Markup:
    """A small line of numbers, from 0 to the largest; nothing for fewer than two."""
    if len(values) < 2 or not any(values):
        return Markup()
    step, largest = _SPARK_WIDTH / (len(values) - 1), max(values)
    points = " ".join(f"{at * step:.1f},{15 - 14 * each / largest:.1f}" for at, each in enumerate(values))
    head = '<svg class="spark" viewBox="0 0 {width} 16" aria-hidden="true">'
    line = Markup(head + '<polyline points="{points}"/></svg>')
    return line.format(width=_SPARK_WIDTH, points=points)


def duration(value_ms: int | None) -> str:
    """A time span for people: 3 d 4 h, 12 min 5 s, 1.5 s, 20 ms."""
    if value_ms is None or value_ms < 0:
        return "none"
    if value_ms < 1000:
        return f"{value_ms} ms"
    if value_ms < 60_000:
        return f"{value_ms / 1000:.1f} s"
    seconds = value_ms // 1000
    for large, small, name, lesser in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= large:
            return f"{seconds // large} {name} {seconds % large // small} {lesser}"
    raise AssertionError(value_ms)


def linked(path: str, /, **parameters: object) -> str:
    """`path` with a query of these parameters, without those that are None."""
    return path + "?" + urlencode({name: value for name, value in parameters.items() if value is not None})


class Templates:
    """Loads the console's templates and renders pages from them."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        for make in (exact, size, count, moment, ago, rate, spark, duration, indented):
            self._environment.filters[make.__name__] = make
        self._environment.globals["linked"] = linked
        self._environment.tests["contains"] = lambda text, part: part in text

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """The page that a template is the content of. It may set `heading`, else the title, and `scripts`."""
        macros = vars(self._environment.get_template("macros.html").make_module(dict(values)))
        page = self._environment.get_template(template).make_module({**macros, **values})
        heading, scripts = getattr(page, "heading", values["title"]), getattr(page, "scripts", "")
        frame = {**values, "heading": heading, "scripts": scripts, "content": Markup(page)}
        return self._environment.get_template("base.html").render(frame)
