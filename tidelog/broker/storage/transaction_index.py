"""Kafka's index of the transactions that were aborted in one segment, in its format: `.txnindex`.

Owns the entries: version i16 (0), producer id, first offset, offset of the marker, last stable offset after
it (i64 each), big-endian, one for each abort marker of the segment in the order of the log.

Invariants: offsets of markers ascend, and last stable offsets do not go back, so a look-up reads only what it
needs. A segment without an aborted transaction has no file, and the format has no checksum: snapshots keep
count and CRC-32C of the entries, so that a lost or changed file is found at the next start. Entries of
batches that a start reads again are made again; all older ones were durable before the recovery point or the
snapshot moved past them.

Look-ups are safe in any thread; everything else belongs to the loop. Source: Kafka's TransactionIndex.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.index import IndexFile
from tidelog.broker.storage.open_transactions import EndedTransaction

TRANSACTION_INDEX_SUFFIX = ".txnindex"
TRANSACTION_ENTRY = Struct(">hqqqq")
_VERSION = 0
_MARKER = 3
_Entry = tuple[int, int, int, int, int]


def decode_entries(data: bytes) -> tuple[list[EndedTransaction], str]:
    """The leading good entries, and why there are no more, or nothing."""
    size = TRANSACTION_ENTRY.size
    found: list[EndedTransaction] = []
    newest = (-1, -1)
    for number, (version, *fields) in enumerate(
        TRANSACTION_ENTRY.iter_unpack(data[: len(data) // size * size])
    ):
        entry = EndedTransaction(*fields)
        _, first, last, last_stable = entry
        if version != _VERSION or not 0 <= first < last or not newest[0] < last or last_stable < newest[1]:
            return found, f"entry {number} is invalid: version {version}, {entry}"
        found.append(entry)
        newest = (last, last_stable)
    left = len(data) % size
    return found, f"{left} bytes are left over after {len(found)} entries" if left else ""


class TransactionIndex(IndexFile[_Entry]):
    """The aborted transactions whose markers one segment holds."""

    __slots__ = ("crc",)

    def __init__(self, disk: Disk, log_path: Path) -> None:
        """`log_path` is that of the segment; it is shared, because most segments never have a file."""
        super().__init__(disk, log_path, TRANSACTION_ENTRY)
        self.crc = 0
        """CRC-32C of all entries."""

    @property
    def file_path(self) -> Path:
        return self.path.with_suffix(TRANSACTION_INDEX_SUFFIX)

    def load(self, before_offset: int) -> str:
        """Read the entries whose markers lie before this offset, and cut off the rest of the file.

        Returns what is wrong with the file, or nothing. Raises OSError.
        """
        if not self.exists:
            self.load_nothing()
            return ""
        data = self._disk.read_file(self.file_path)
        found, problem = decode_entries(data)
        kept = sum(entry.last_offset < before_offset for entry in found)
        size = kept * self.entry.size
        self._entries, self.count, self.written = bytearray(data[:size]), kept, size
        self.crc = crc32c(data[:size])
        if size < len(data):
            self._disk.truncate(self._open().fd, size)
            self.rest()
        self._is_as_loaded = True
        return problem if kept == len(found) else ""

    def load_nothing(self) -> None:
        """There is no file."""
        self._is_as_loaded = True

    def append(self, aborted: EndedTransaction) -> None:
        """Add a transaction, unless the index has it already: a start may read its marker again."""
        last = self.last()
        if last is None or last[_MARKER] < aborted.last_offset:
            self._add(self.entry.pack(_VERSION, *aborted))

    def known_before(self, offset: int) -> tuple[int, int]:
        """Count and CRC-32C of the transactions, in memory still, whose markers lie before this offset."""
        count = self._count_up_to(offset - 1, _MARKER)
        return count, crc32c(bytes((self._entries or b"")[: count * self.entry.size]))

    def _add(self, packed: bytes) -> None:
        super()._add(packed)
        self.crc = crc32c(packed, self.crc)

    def truncate(self, count: int) -> None:
        """As for the other indexes."""
        super().truncate(count)
        self.crc = crc32c(bytes(self._entries or b""))

    def keep_before(self, end_offset: int) -> None:
        """Forget the transactions whose markers the log does not hold any more."""
        self.keep_below(end_offset, _MARKER)

    def replace(self, entries: list[EndedTransaction]) -> None:
        self.truncate(0)
        for entry in entries:
            self.append(entry)

    def without(self, markers: Sequence[int]) -> TransactionIndex:
        """What is left of it, in memory, without the transactions of these markers, ascending. It is the same
        object if that is all; else `save` writes it."""
        left = TransactionIndex(self._disk, self.path)
        for entry in self.entry.iter_unpack(self._entries or b""):
            at = bisect_left(markers, entry[_MARKER])
            if at == len(markers) or markers[at] != entry[_MARKER]:
                left._add(self.entry.pack(*entry))
        return self if left.count == self.count else left

    def save(self) -> None:
        """Replace the file durably, unless it has just these entries. Raises OSError; then it has the old
        ones or these."""
        if self._is_as_loaded:
            return
        if self.count:
            self._disk.replace_file(self.file_path, [bytes(self._entries or b"")])
        else:
            if self.exists:
                self._disk.unlink(self.file_path)
            self._disk.fsync_directory(self.file_path.parent)
        self.written, self._is_as_loaded = self.count * self.entry.size, True
        self.leave_memory()

    def aborted(
        self, offset: int, upper_offset: int, *, nowait: bool = False
    ) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of the transactions here that have records in `offset` to
        `upper_offset`, and whether no later segment can have one.

        Raises OSError, and ColdRead with `nowait`.
        """
        found = []
        for number in range(self._count_up_to(offset - 1, _MARKER, nowait=nowait), self.count):
            _, producer_id, first_offset, _, last_stable = self.at(number, nowait=nowait)
            if first_offset < upper_offset:
                found.append((producer_id, first_offset))
            if last_stable >= upper_offset:
                return found, True
        return found, False

    def leave_memory(self) -> None:
        """As for the other indexes; without an entry there is no file to read. The first look-up opens it."""
        if self.count:
            super().leave_memory()
            self.close()

    def write_out(self) -> None:
        """As for the other indexes; without an entry no file is made."""
        if self.count or (not self._is_as_loaded and self.exists):
            super().write_out()

    def write_out_whole(self) -> None:
        self.write_out()

    def sync(self) -> None:
        if self.count or (not self._is_as_loaded and self.exists):
            super().sync()
