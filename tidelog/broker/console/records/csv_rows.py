"""Records as rows of a table that a spreadsheet opens.

Owns the columns. Invariant: no cell begins with what a spreadsheet takes for a formula: such a cell gets an
apostrophe before it. Pure.

Source: RFC 4180; OWASP, "CSV Injection".
"""

import csv
import io
import json
from typing import Any, Final

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
CSV_HEAD: Final = (",".join(_COLUMNS) + "\r\n").encode()


def csv_rows(lines: bytes) -> bytes:
    """A row for each line of `json_lines.line_of`; headers, and bytes that are not UTF-8, as JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    for line in lines.splitlines():
        fields = json.loads(line)
        writer.writerow([_cell(fields[name]) for name in _COLUMNS])
    return text.getvalue().encode("utf-8", "surrogatepass")


def _cell(value: Any) -> str:
    if value is None or isinstance(value, int):
        return "" if value is None else str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text
