"""The metrics of several processes as one text, in which each series has the label `process`.

Owns the merge of texts in Prometheus' format 0.0.4: a family is named once, with the series of all processes
behind it, as the format demands.

Pure.
"""

from collections.abc import Iterable, Mapping


def merged(texts: Mapping[str, str]) -> str:
    """`texts`: the name of a process -> its exposition."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for process, text in texts.items():
        comments: list[str] = []
        series: list[str] = []
        for line in text.split("\n"):  # Names of clients may have what else ends a line for Python.
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                comments, series = families.setdefault(name, ([], []))
                if not series:
                    comments.clear()
                    comments.append(line)
            elif line.startswith("# TYPE "):
                if not series:
                    comments.append(line)
            elif line:
                series.append(_labelled(line, process))
    return "".join(f"{line}\n" for family in families.values() for line in _lines(family))


def _lines(family: tuple[list[str], list[str]]) -> Iterable[str]:
    comments, series = family
    return (*comments, *series)


def _labelled(line: str, process: str) -> str:
    """A series with one label more, before the others."""
    brace, space = line.find("{"), line.find(" ")
    if 0 <= brace < space:
        rest = line[brace + 1 :]
        comma = "" if rest.startswith("}") else ","
        return f'{line[:brace]}{{process="{process}"{comma}{rest}'
    return f'{line[:space]}{{process="{process}"}}{line[space:]}'
