"""Strings as UTF-8."""


def serialize_text(value: str | None) -> bytes | None:
    """A string as UTF-8."""
    return None if value is None else value.encode()


def deserialize_text(data: bytes | None) -> str | None:
    """A string from UTF-8. Raises UnicodeDecodeError."""
    return None if data is None else data.decode()
