"""The setting `processes`: how many processes a broker has.

Pure.
"""

from collections.abc import Callable
from typing import Final

from tidelog.protocol.settings import ConfigError

AUTO: Final = "auto"
MOST_PROCESSES: Final = 64


def checked_processes(value: object) -> str:
    """The setting as text. Raises ConfigError."""
    text = str(value).strip().lower()
    if text == AUTO:
        return text
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_PROCESSES):
        raise ConfigError(
            f"processes: expected a whole number from 1 to {MOST_PROCESSES}, or {AUTO}, got {value!r}"
        )
    return str(int(text))


def process_count(setting: str, cores: Callable[[], int]) -> int:
    """The number of processes that the setting asks for; `cores` says how many cores they may use."""
    return max(1, min(cores(), MOST_PROCESSES)) if setting == AUTO else int(setting)
