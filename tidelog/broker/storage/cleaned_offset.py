"""The offset up to which a log may have gaps between its batches, and within them, as compaction leaves them.

Owns that offset and its file, `cleaned-offset-checkpoint`: Kafka's checkpoint format with one offset. A log
that was never cleaned has no file, and each of its batches begins where the one before it ends. All before
the cleaner's first dirty offset was cleaned too: so a file that is lost, or says too little, costs no record.

Invariants: the offset is durable before a flush reports a batch behind a gap as durable; at a start it never
comes after the end of the log, so that later appends have no gaps. If the file cannot be understood, gaps are
allowed everywhere: recovery must not cut off a cleaned log as damaged. A file that allows too much is
replaced once the disk has room.
"""

import threading
from contextlib import suppress
from pathlib import Path

from tidelog.broker.storage import checkpoints
from tidelog.broker.storage.disk import FULL, Disk

_EVERYWHERE = 2**63 - 1


class CleanedOffset:
    """Keeps the offset up to which one log may have gaps. `load` before anything else."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / checkpoints.CLEANED_OFFSET
        self.offset = 0
        """A batch that begins here or before may begin after the end of the one before it."""
        self.is_dirty = False
        self._saved = 0
        """What a start would read."""
        self._saving = threading.Lock()

    def load(self) -> str | None:
        """Read the file; returns what was wrong with it, if anything. Raises OSError."""
        try:
            self.offset = checkpoints.read_number(self._disk, self._path)
        except checkpoints.CheckpointError as error:
            self.offset = self._saved = _EVERYWHERE
            return str(error)
        with suppress(checkpoints.CheckpointError):  # The cleaner then begins at the start of the log.
            first_dirty = checkpoints.read_number(
                self._disk, self._path.with_name(checkpoints.FIRST_DIRTY_OFFSET)
            )
            self.offset = max(self.offset, first_dirty)
        self._saved = self.offset
        return None

    def limit(self, end_offset: int) -> None:
        """The log ends at `end_offset`."""
        if self.offset > end_offset:
            self.offset, self.is_dirty = end_offset, True

    def allow(self, offset: int) -> None:
        """Gaps may come before `offset`. It is saved before a gap is made."""
        self.offset = max(self.offset, offset)

    def note(self, offset: int) -> None:
        """Gaps are allowed before `offset`, which the next flush saves."""
        if offset > self.offset:
            self.offset, self.is_dirty = offset, True

    def save(self, offset: int) -> None:
        """Write the file durably, with this offset or a larger one that is known by now; in any thread.

        Raises OSError, but on a full disk only if the file allows too little.
        """
        with self._saving:
            allowed = max(offset, self.offset)
            try:
                checkpoints.write_number(self._disk, self._path, allowed)
            except OSError as error:
                if allowed > self._saved or error.errno not in FULL:
                    raise
                self.is_dirty = True
            else:
                self._saved = allowed
