"""Which seeds come next: those of this commit, and after those that this machine has played on it.

Owns the file that remembers them, outside of the tree: `$XDG_STATE_HOME/tidelog/simulation.json`, else in
`~/.local/state`. A tree with changes is not remembered.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_SPREAD: Final = 1_000_000_000
"""Seeds of commits begin below."""


def commit() -> str:
    """That of the tree, with "-dirty" behind it if files are changed; "" without git."""
    asked = ["git", "-C", str(_ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--match", ""]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def first_of(name: str) -> int:
    """The first seed of a commit: each commit has others."""
    return int(name[:12] or "0", 16) % _SPREAD


class Memory:
    """How far each kind of worlds was played on each commit."""

    def __init__(self, path: Path | None = None) -> None:
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        self._path = path or Path(state) / "tidelog" / "simulation.json"

    def next_seed(self, name: str, kind: str) -> int:
        """Of the commit `name`."""
        return self._read().get(name, {}).get(kind, first_of(name))

    def played(self, name: str, kind: str, next_seed: int) -> None:
        """All before `next_seed` are done. Raises OSError."""
        if not name or name.endswith("-dirty"):
            return
        known = self._read()
        known.setdefault(name, {})[kind] = next_seed
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(known, indent=1))
        written.replace(self._path)

    def _read(self) -> dict[str, dict[str, int]]:
        try:
            found: dict[str, dict[str, int]] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found
