"""Where a reader stands, whatever happens to it: `partition_reader.txt`."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

import tidelog.client.consumer.partition_reader
from tests.compaction import cleaned
from tests.scripts import Case, cases
from tidelog.client import CorruptRecordError, TopicPartition
from tidelog.client.consumer.partition_reader import PartitionReader
from tidelog.protocol.records import AbortedTransactions, RecordBatchBuilder

KEY = TopicPartition("t", 0)


def stored(
    base_offset: int, *values: bytes, is_control: bool = False, transaction_of: int | None = None
) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    data = builder.build(
        producer_id=-1 if transaction_of is None else transaction_of,
        is_control=is_control,
        is_transactional=transaction_of is not None,
        base_offset=base_offset,
        leader_epoch=0,
    )
    return bytes(data)


def reader(position: int = 0) -> PartitionReader:
    made = PartitionReader(KEY, check_crc=True)
    made.seek(position)
    return made


class Script:
    """The commands. A batch is its first offset and values: `0:a,b`; also `2:a!control`, `0:a!7` of
    producer 7, `4:e,f!kept=1` of which compaction kept some, `1:b!corrupt`, `1:b!cut`."""

    def __init__(self) -> None:
        self.it = reader()

    def new(self, position: str) -> None:
        self.it = reader(int(position))

    def add(self, *words: str) -> str:
        """An answer; the word `aborted=7` names transactions that it hides."""
        data = bytearray(b"".join(_batch(word) for word in words if ":" in word))
        hidden = [(int(word[8:]), 0) for word in words if word.startswith("aborted=")]
        try:
            self.it.add(memoryview(data), *([AbortedTransactions(hidden)] if hidden else []))
        except CorruptRecordError as error:
            return str(error)
        data[:] = bytes(len(data))  # What was fetched does not hang on the buffer that it came in.
        return self.state()

    def junk(self) -> str:
        with pytest.raises(CorruptRecordError) as refused:
            self.it.add(b"x" * 100)
        return str(refused.value)

    def take(self, limit: str) -> str:
        return self._taken(
            f"{each.offset}:{(each.value or b'').decode()}" for each in self.it.take(int(limit))
        )

    def columns(self, limit: str) -> str:
        found = self.it.take_columns(int(limit))
        return self._taken(",".join(value.decode() for value in each.values) for each in found)

    def next_record(self) -> str:
        found = self.it.next_record()
        return self._taken([] if found is None else [f"{found.offset}:{(found.value or b'').decode()}"])

    def seek(self, position: str) -> str:
        before = self.it.generation
        self.it.seek(int(position))
        assert self.it.generation != before
        return self.state()

    def pause(self) -> None:
        self.it.is_paused = True

    def resume(self) -> None:
        self.it.is_paused = False

    def _taken(self, found: Iterable[str]) -> str:
        return f"{' '.join(found) or 'nothing'}; {self.state()}"

    def state(self) -> str:
        it = self.it
        has = "some" if it.buffered_bytes else "none"
        error = f", {it.error}" if it.error else ""
        return f"position {it.position}, fetch from {it.fetch_offset}, {has} unread{error}"


def _batch(word: str) -> bytes:
    where, _, more = word.partition("!")
    first, _, values = where.partition(":")
    producer = int(more) if more.isdigit() else None
    data = stored(
        int(first),
        *(each.encode() for each in values.split(",")),
        is_control=more == "control",
        transaction_of=producer,
    )
    if more.startswith("kept"):
        return cleaned(data, tuple(map(int, filter(None, more[5:].split("+")))))
    if more == "corrupt":
        return data[:-1] + bytes([data[-1] ^ 1])
    return data[:-3] if more == "cut" else data


@cases(Path(__file__).parent / "partition_reader.txt")
async def test_partition_reader(case: Case, rewrite: bool) -> None:
    await case.play(Script(), rewrite)


@pytest.mark.parametrize("fewest_rows", [2, 256])
def test_columns_and_records_give_the_same_whatever_is_asked_in_which_order(
    fewest_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidelog.client.consumer.partition_reader, "_FEWEST_ROWS", fewest_rows)
    data = b"".join(
        stored(3 * number, *(b"%d" % (3 * number + index) for index in range(3))) for number in range(8)
    )
    whole = reader()
    whole.add(data)
    expected = [(record.offset, record.timestamp, record.key, record.value) for record in whole.take(100)]
    for seed in range(30):
        rng = random.Random(seed)
        it = reader(rng.randrange(6))
        it.add(data)
        found = []
        while it.has_unread:
            limit = rng.randint(1, 7)
            if rng.random() < 0.5:
                taken = it.take(limit)
                found += [(record.offset, record.timestamp, record.key, record.value) for record in taken]
            else:
                for columns in it.take_columns(limit):
                    fields = columns.offsets, columns.timestamps, columns.keys, columns.values
                    found += list(zip(*fields, strict=True))
                    assert columns.record_count == len(columns.headers) <= limit
            assert it.position == found[-1][0] + 1
        assert found == expected[len(expected) - len(found) :]
        assert (it.position, it.buffered_bytes) == (24, 0)
