"""Keys and values of a schema registry as JSON, for `tidelog consume`.

Owns what becomes of those that cannot be decoded: they are printed as they are, and standard error says why,
once for each reason.
"""

from collections.abc import Sequence
from typing import Any

import typer

from tidelog.schemas.decoded_values import MOST_AT_ONCE, DecodedValues
from tidelog.schemas.registry import SchemaRegistry

_RECORDS_AT_ONCE = MOST_AT_ONCE // 2
"""Each has a key and a value."""


class RegisteredValues:
    """Decodes the keys and values of records, as the registry at `url` describes them."""

    def __init__(self, url: str, user_info: str) -> None:
        self._values = DecodedValues(SchemaRegistry(url, user_info))
        self._problems: set[str] = set()

    async def decode(self, records: Sequence[Any]) -> list[Any]:
        """The records with the JSON of their keys and values."""
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            some = records[start : start + _RECORDS_AT_ONCE]
            await self._values.fetch(part for each in some for part in (each.key, each.value))
        return [
            record._replace(key=self._decoded(record, record.key), value=self._decoded(record, record.value))
            for record in records
        ]

    def _decoded(self, record: Any, data: bytes | None) -> bytes | None:
        if data is None:
            return None
        try:
            found = self._values.decode(data)
        except ValueError as error:
            if str(error) not in self._problems:
                self._problems.add(str(error))
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                typer.echo(f"{where} is printed as it is: {error}", err=True)
            return data
        return data if found is None else found.text.encode()
