"""JSON of plain values, dataclasses, typed dictionaries, msgspec's structs and pydantic's models.

pydantic is used only for its own models, so it need not be installed.
"""

from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")


class JsonSerializer:
    """Writes JSON. Raises TypeError for a value that has none, such as a set or an open file."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if hasattr(value, "model_dump_json"):
            return str(value.model_dump_json()).encode()
        return self._encode(value)


class JsonDeserializer(Generic[T]):
    """Reads JSON as values of one type, and checks them. `type`: what msgspec can decode, or a model of
    pydantic; `Any` takes everything. Raises ValueError that names the part which does not fit."""

    def __init__(self, type: type[T]) -> None:
        validate = getattr(type, "model_validate_json", None)
        self._decode = msgspec.json.Decoder(type).decode if validate is None else validate

    def __call__(self, data: bytes | None) -> T | None:
        return None if data is None else cast("T", self._decode(data))
