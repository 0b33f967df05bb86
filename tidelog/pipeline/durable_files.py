"""Small JSON files that survive a power cut, each complete or absent.

Owns how such a file is written: under another name first, synced, and then renamed.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """What the file holds, None if it does not exist."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def replace_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    """Replace the file's content as a whole."""
    _draft(path, content).replace(path)
    sync(path.parent)


def create_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> bool:
    """Create the file, and the folders that it needs. False if it exists: then it is left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path, content)
    try:
        # Unlike a rename, a link fails if the file exists.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
        sync(path.parent)
    return True


def _draft(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> Path:
    draft = path.with_name(f".{uuid.uuid4().hex}")
    draft.write_text(json.dumps(content))
    sync(draft)
    return draft
