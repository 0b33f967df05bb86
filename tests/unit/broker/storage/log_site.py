"""A partition's log that scripts ask: who appends what, what stops and damages it, and what is then so.

Times are milliseconds after a beginning. A producer is `ID:EPOCH`, with `/SEQUENCE` where it sends.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.broker.storage.support import (
    NOW_MS,
    append_own,
    batch,
    checkpoint,
    clean,
    flush,
    keyed,
    marker,
    open_log,
)
from tidelog.broker.storage.batch_rules import AppendOrigin
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.producer_table import ProducerEntry
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    BatchHeader,
    RecordBatchBuilder,
    decode_batch,
    iter_batches,
    with_max_timestamp,
)

_SENDER = re.compile(r"(-?\d+):(-?\d+)/(-?\d+)")
_ORIGINS = {"leader": AppendOrigin.LEADER, "coordinator": AppendOrigin.COORDINATOR}


class LogSite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = LogConfig()
        self.log: PartitionLog

    def open(self, *settings: str) -> None:
        """Settings as `NAME=VALUE`, with the names of LogConfig."""
        self.config = LogConfig(**{name: _setting(value) for name, value in _options(settings).items()})
        self.log = open_log(self.folder, config=self.config)

    def set(self, *settings: str) -> None:
        self.config = replace(
            self.config, **{name: _setting(text) for name, text in _options(settings).items()}
        )
        self.log.reconfigure(self.config)

    def append(self, *words: str) -> str:
        """Words: the producer, `n=RECORDS`, `at=`, `step=`, `size=` of a value, `codec=`, `leader-epoch=`,
        `max-time=` of the header, `transactional`, `by=leader` or `by=coordinator`."""
        options = _options(words)
        is_transactional = "transactional" in words
        sender = [tuple(map(int, found.groups())) for word in words if (found := _SENDER.fullmatch(word))]
        producer_id, epoch, sequence = sender[0] if sender else (-1, 0, 0)
        data = batch(
            producer_id,
            epoch,
            sequence,
            int(options.get("n", 1)),
            timestamp=NOW_MS + int(options.get("at", 0)),
            step_ms=int(options.get("step", 1)),
            value=b"v" * int(options.get("size", 20)),
            compression=Compression[options.get("codec", "none").upper()],
            is_transactional=is_transactional,
        )
        if "max-time" in options:
            maximum = int(options["max-time"])
            data = with_max_timestamp(bytearray(data), maximum if maximum <= 0 else NOW_MS + maximum)
        return self._stored(data, options, is_transactional)

    def untimed(self, *words: str) -> str:
        """As librdkafka sends records with timestamp -1: `n=`, `max-time=`, `base=`, `codec=`."""
        options = _options(words)
        codec = Compression[options.get("codec", "none").upper()]
        data = bytearray(batch(count=int(options.get("n", 3)), timestamp=-1, step_ms=0, compression=codec))
        data[27:35] = int(options.get("base", -1)).to_bytes(8, "big", signed=True)
        return self._stored(with_max_timestamp(data, int(options.get("max-time", 0))), options)

    def written_at(self, at: str) -> None:
        """Give all segments the time of their last write."""
        for path in self.folder.glob("*.log"):
            os.utime(path, ns=((NOW_MS + int(at)) * 10**6,) * 2)

    def _stored(self, data: bytes, options: dict[str, str], is_transactional: bool = False) -> str:
        more: dict[str, Any] = {"permit": lambda begins: None} if is_transactional else {}
        if "by" in options:
            more["origin"] = _ORIGINS[options["by"]]
        epoch, now_ms = int(options.get("leader-epoch", 0)), NOW_MS + int(options.get("now", 0))
        result = self.log.append(data, leader_epoch=epoch, now_ms=now_ms, **more)
        if result.base_offset < 0:
            return "duplicate below the window"
        return f"{result.base_offset}..{result.last_offset}" + " duplicate" * result.duplicate

    def put(self, *words: str) -> str:
        """Records of `KEY=VALUE`; `KEY=` is a tombstone, `=VALUE` has no key. Words: `by:` the producer,
        `transactional`."""
        sender = [tuple(map(int, found.groups())) for word in words if (found := _SENDER.fullmatch(word))]
        pairs = [word.split("=") for word in words if "=" in word]
        records = [(key.encode() or None, value.encode() or None) for key, value in pairs]
        is_transactional = "transactional" in words
        data = keyed(records, *(sender[0] if sender else (-1, 0, 0)), is_transactional=is_transactional)
        return self._stored(data, {}, is_transactional)

    def marker(self, producer: str, outcome: str, coordinator: str = "0") -> str:
        """`commit`, `abort`, or the bytes of a key of another kind."""
        producer_id, epoch = map(int, producer.split(":"))
        key = b"" if outcome in ("commit", "abort") else bytes.fromhex(outcome)
        data = marker(producer_id, epoch, int(coordinator), commits=outcome == "commit", key=key)
        return self._stored(data, {"by": "coordinator"})

    def offsets_of(self, producer: str) -> str:
        """Records that a coordinator writes in a producer's transaction, as TxnOffsetCommit does."""
        builder = RecordBatchBuilder()
        builder.append(NOW_MS, b"key", b"offset")
        producer_id, epoch = map(int, producer.split(":"))
        data = builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=-1, is_transactional=True
        )
        result = append_own(self.log, data)
        return f"{result.base_offset}..{result.last_offset}"

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def flush(self) -> None:
        flush(self.log)

    def checkpoint(self) -> None:
        checkpoint(self.log)

    def snapshot(self) -> None:
        self.log.take_snapshot()

    def delete_before(self, offset: str) -> str:
        return str(self.log.delete_records_before(int(offset)))

    def committed(self, end: str = "") -> None:
        """What all replicas have."""
        self.log.committed_end = int(end) if end else None

    def sizes(self) -> str:
        """Of the log, and of the segments that left it since."""
        left = sum(each.stat().st_size for each in self.log.take_deleted_files() if ".log." in each.name)
        return f"{self.log.size_bytes} bytes, {left} left"

    def retention(self, at: str) -> str:
        """Where the log begins, or 0 if nothing is deleted; its files leave with a checkpoint."""
        return str(self.log.apply_retention(NOW_MS + int(at)))

    def clean(self, at: str = "0") -> None:
        """Compact all that is closed and durable."""
        self.log.roll(NOW_MS)
        flush(self.log)
        clean(self.log, now_ms=NOW_MS + int(at))

    def restart(self) -> None:
        assert self.log.close(clean=True)
        self.log = open_log(self.folder, config=self.config, clean=True, recovery_point=self.log.end_offset)

    def crash(self, point: str = "") -> None:
        """The process ends; what is flushed stays. The word `0`: no recovery point is known."""
        self.log.close(clean=False)
        self.log = open_log(
            self.folder, config=self.config, recovery_point=int(point or self.log.recovery_point)
        )

    def stop(self) -> None:
        """As `restart`, without the start, so that files can be damaged before `start`."""
        self.log.close(clean=True)

    def kill(self) -> None:
        """As `crash`, without the start."""
        self.log.close(clean=False)

    def start(self, how: str = "clean", saved_start: str = "") -> str:
        """`clean`, `killed` or `lost` (the log ends before the recovery point); a saved start."""
        point = {"clean": self.log.end_offset, "killed": self.log.recovery_point, "lost": 1_000_000}[how]
        self.log = open_log(
            self.folder,
            config=self.config,
            clean=how == "clean",
            recovery_point=point,
            start_offset=int(saved_start) if saved_start else None,
        )
        found = self.log.recovery
        told = [f"truncated {found.truncated_bytes} bytes at {found.truncated_at_offset}"] * bool(
            found.truncated_bytes
        )
        told += ["damaged"] * found.is_damaged + [f"kept {name}" for name in found.kept_aside]
        told += [f"deleted {_short(name)}" for name in found.deleted_segments]
        told += [f"rebuilt {_short(name)}" for name in found.rebuilt_indexes]
        told += [f"set aside {_short(name)}" for name in found.corrupt_snapshots]
        told += [_short(each).replace(str(self.folder), "<folder>") for each in found.file_problems]
        moved = [found.start_moved] if found.start_moved is not None else []
        told += [f"start moved from {hole.first_offset} to {hole.end_offset}" for hole in moved]
        told += [f"hole {hole.first_offset}..{hole.end_offset - 1}" for hole in self.log.holes]
        return "; ".join(told)

    def read_back(self) -> str:
        found = self.log.recovery
        return f"{found.scanned_bytes} bytes, {found.replayed_batches} batches"

    def remove(self, pattern: str) -> None:
        for path in self.folder.glob(pattern):
            path.unlink()

    def cut(self, name: str, size: str) -> None:
        """So many bytes are gone at the end of a file; `NUMBER.SUFFIX` counts them from 0."""
        path = self._file(name)
        os.truncate(path, path.stat().st_size - int(size))

    def write(self, name: str, *lines: str) -> None:
        """One line each, with `_` for a space."""
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines).replace("_", " "))

    def flip(self, name: str, position: str) -> None:
        path = self._file(name)
        data = bytearray(path.read_bytes())
        data[int(position)] ^= 1
        path.write_bytes(data)

    def _file(self, name: str) -> Path:
        number, suffix = name.split(".")
        return sorted(self.folder.glob(f"*.{suffix}"))[int(number)]

    def files(self, pattern: str = "*") -> str:
        return " ".join(_short(path.name) for path in sorted(self.folder.glob(pattern)))

    def ends(self) -> str:
        log = self.log
        segments = f"{log.segment_count} segment" + "s" * (log.segment_count > 1)
        return f"{log.start_offset}..{log.end_offset}, flushed {log.flushed_end_offset}, {segments}"

    def batches(self) -> str:
        """What a consumer reads from the start: offsets, producer, sequences, and records that are left."""
        return "\n".join(_batch_text(header) for header, _ in self._all())

    def records(self) -> str:
        return " ".join(
            f"{each.offset}:{(each.key or b'').decode()}={(each.value or b'').decode()}"
            for header, data in self._all()
            if not header.is_control
            for each in decode_batch(data)
        )

    def markers(self) -> str:
        return " ".join(
            f"{header.base_offset}:{header.producer_id}" for header, _ in self._all() if header.is_control
        )

    def _all(self) -> list[tuple[BatchHeader, bytes]]:
        found, offset = [], self.log.start_offset
        while offset < self.log.end_offset:
            result = self.log.read(Read(offset, 1, self.log.end_offset))
            for view in result.records:
                found += [
                    (header, bytes(view[at : at + header.size_bytes])) for at, header in iter_batches(view)
                ]
            offset = result.next_offset
        return found

    def read(self, offset: str, size: str = "1000000", upper: str = "") -> str:
        """Where the batches begin, and the next offset."""
        found = self.log.read(Read(int(offset), int(size), int(upper or self.log.end_offset)))
        begins = [str(header.base_offset) for view in found.records for _, header in iter_batches(view)]
        return f"{' '.join(begins) or 'nothing'}, next {found.next_offset}"

    def at_time(self, at: str) -> str:
        found = self.log.offset_for_timestamp(NOW_MS + int(at))
        return "nothing" if found is None else f"{found.offset} at {found.timestamp - NOW_MS}"

    def largest_time(self) -> str:
        found = self.log.max_timestamp_offset()
        return "nothing" if found is None else f"{found.offset} at {found.timestamp - NOW_MS}"

    def end_of_epoch(self, epoch: str) -> str:
        return "{} ends at {}".format(*self.log.end_offset_for_epoch(int(epoch)))

    def aborted(self) -> str:
        found = self.log.aborted_transactions(0, self.log.end_offset)
        return ", ".join(f"{producer} from {first}" for producer, first in found) or "none"

    def stable(self) -> str:
        self.log.transactions.settle(self.log.flushed_end_offset)
        unstable = self.log.transactions.first_unstable
        return str(min(unstable, self.log.end_offset))

    def producers(self) -> str:
        return "\n".join(map(_producer_text, self.log.producers.entries()))

    def forget(self, producer_id: str) -> str:
        return str(self.log.producers.forget(int(producer_id)))

    def expire(self, at: str) -> str:
        return str(self.log.producers.expire(NOW_MS + int(at)))


def _options(words: tuple[str, ...]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _setting(text: str) -> Any:
    if text.lstrip("-").isdigit():
        return int(text)
    return tuple(filter(None, text.split("+"))) if "+" in text else text


def _short(name: str) -> str:
    return re.sub(r"\b0+(?=\d)", "", name)


def _batch_text(header: BatchHeader) -> str:
    offsets = f"{header.base_offset}..{header.last_offset}"
    if header.producer_id < 0:
        return f"{offsets}, {header.record_count} records"
    name = f"{header.producer_id}:{header.producer_epoch}"
    if header.is_control:
        return f"{offsets}, marker of {name}"
    return f"{offsets}, {header.record_count} records of {name}/{header.base_sequence}"


def _producer_text(entry: ProducerEntry) -> str:
    sequences = " ".join(
        f"{each.last_sequence - each.offset_delta}..{each.last_sequence}" for each in entry.batches
    )
    text = f"{entry.producer_id}:{entry.producer_epoch} sent {sequences or 'nothing'}"
    if entry.coordinator_epoch >= 0:
        text += f", ended by coordinator {entry.coordinator_epoch}"
    return text + (
        f", in a transaction from {entry.current_txn_start_offset}" * (entry.current_txn_start_offset >= 0)
    )
