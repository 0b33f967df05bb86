"""Where the partitions of each process of a broker lie within its data folder (`serve --processes N`).

Owns the layout: process 0 has the data folder itself, which one process alone uses too; process K has
`processes/K` in it. No partition's folder can have these names, because each ends with a dash and a number.

Blocking.
"""

from pathlib import Path
from typing import Final

PROCESSES: Final = "processes"


def folder_of(data_dir: Path, process: int) -> Path:
    return data_dir / PROCESSES / str(process) if process else data_dir


def process_folders(data_dir: Path) -> dict[int, Path]:
    """The folders that there are, by process, that of process 0 first. Raises OSError."""
    found = {0: data_dir}
    parent = data_dir / PROCESSES
    if parent.is_dir():
        numbers = sorted(int(each.name) for each in parent.iterdir() if _is_number(each.name))
        found |= {number: parent / str(number) for number in numbers if (parent / str(number)).is_dir()}
    return found


def store_socket(data_dir: Path) -> Path:
    """Where the process of the store answers the others."""
    return data_dir / PROCESSES / "store.sock"


def http_socket(data_dir: Path, process: int) -> Path:
    """Where a process answers the one that serves `http.port`."""
    return data_dir / PROCESSES / f"http-{process}.sock"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name == str(int(name)) and name != "0"
