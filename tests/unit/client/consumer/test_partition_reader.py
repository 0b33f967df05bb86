"""Where a reader stands, whatever happens to it."""

import random

import pytest

import tidelog.client.consumer.partition_reader
from tests.compaction import cleaned
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


def drain(it: PartitionReader) -> list[bytes | None]:
    values = []
    while records := it.take(100):
        values += [record.value for record in records]
    return values


@pytest.fixture
def it() -> PartitionReader:
    return reader()


def test_the_position_follows_what_was_handed_out_not_what_was_fetched(it: PartitionReader) -> None:
    it.add(stored(0, b"a", b"b", b"c"))
    assert (it.position, it.fetch_offset) == (0, 3)
    assert [record.offset for record in it.take(2)] == [0, 1]
    assert it.position == 2
    it.take(2)
    assert it.position == 3


def test_records_are_taken_from_as_many_batches_as_it_takes(it: PartitionReader) -> None:
    it.add(stored(0, b"a", b"b") + stored(2, b"marker", is_control=True) + stored(3, b"c", b"d", b"e"))
    assert ([record.offset for record in it.take(3)], it.position) == ([0, 1, 3], 4)
    assert ([record.offset for record in it.take(3)], it.position) == ([4, 5], 6)
    assert (it.take(3), it.position, it.buffered_bytes) == ([], 6, 0)


def test_what_was_fetched_does_not_hang_on_the_buffer_it_came_in(it: PartitionReader) -> None:
    buffer = bytearray(stored(0, b"a"))
    it.add(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert drain(it) == [b"a"]


def test_an_answer_may_end_in_a_truncated_batch_which_comes_again(it: PartitionReader) -> None:
    whole, next_one = stored(0, b"a"), stored(1, b"b")
    it.add(whole + next_one[:-3])
    assert (drain(it), it.fetch_offset) == ([b"a"], 1)
    it.add(next_one)
    assert drain(it) == [b"b"]


def test_a_batch_that_was_handed_out_is_not_handed_out_again(it: PartitionReader) -> None:
    it.add(stored(0, b"a"))
    it.add(stored(0, b"a") + stored(1, b"b"))
    assert drain(it) == [b"a", b"b"]


def test_what_compaction_took_is_passed_over(it: PartitionReader) -> None:
    """Within a batch, at its ends, whole batches, and all records of the last one."""
    it.add(
        cleaned(stored(0, b"a", b"b", b"c", b"d"), (1, 2))
        + cleaned(stored(4, b"e", b"f"), ())
        + stored(10, b"g")
        + cleaned(stored(11, b"h", b"i", b"j"), (0, 2))
        + cleaned(stored(14, b"k"), ())
    )
    assert it.fetch_offset == 15
    assert ([record.offset for record in it.take(1)], it.position) == ([1], 2)
    assert ([record.offset for record in it.take(2)], it.position) == ([2, 10], 11)
    assert ([record.offset for record in it.take(9)], it.position) == ([11, 13], 15)
    assert it.buffered_bytes == 0


def test_a_seek_to_what_compaction_took_gives_the_next_record() -> None:
    data = cleaned(stored(0, b"a", b"b", b"c", b"d"), (0, 3)) + cleaned(stored(4, b"e", b"f"), (1,))
    for position, offsets in ((1, [3, 5]), (3, [3, 5]), (4, [5])):
        it = reader(position)
        it.add(data)
        assert [record.offset for record in it.take(9)] == offsets
        assert it.position == 6


def test_a_seek_throws_away_what_was_fetched_and_marks_what_is_under_way(it: PartitionReader) -> None:
    before = it.generation
    it.add(stored(0, b"a", b"b"))
    it.take(1)
    it.seek(7)
    assert (it.take(10), it.position, it.buffered_bytes) == ([], 7, 0)
    assert it.generation != before


def test_a_corrupt_batch_is_an_error_after_what_lies_before_it(it: PartitionReader) -> None:
    bad = bytearray(stored(1, b"b"))
    bad[-1] ^= 1
    it.add(stored(0, b"a") + bytes(bad) + stored(2, b"c"))
    assert drain(it) == [b"a"]
    assert isinstance(it.error, CorruptRecordError)
    assert "offset 1" in str(it.error)
    assert (it.position, it.buffered_bytes) == (1, 0)
    it.seek(2)
    assert it.error is None


def test_bytes_that_are_no_batch_are_refused_whole(it: PartitionReader) -> None:
    with pytest.raises(CorruptRecordError, match="offset 0"):
        it.add(b"x" * 100)
    assert (it.fetch_offset, it.buffered_bytes) == (0, 0)


def test_a_paused_reader_keeps_what_it_has(it: PartitionReader) -> None:
    it.add(stored(0, b"a"))
    it.is_paused = True
    assert not it.has_data
    assert it.take(10) == []
    it.is_paused = False
    assert drain(it) == [b"a"]


def test_unread_bytes_are_counted(it: PartitionReader) -> None:
    data = stored(0, b"a")
    it.add(data)
    assert it.buffered_bytes == len(data)
    drain(it)
    assert it.buffered_bytes == 0


def test_a_record_at_hand_moves_the_position_as_any_other_does(it: PartitionReader) -> None:
    it.add(stored(0, b"a", b"b", b"c"))
    assert it.next_record() is None
    it.take(1)
    record = it.next_record()
    assert record is not None
    assert (record.value, it.position) == (b"b", 2)
    assert it.next_record() is None
    assert drain(it) == [b"c"]
    assert it.position == 3


def test_no_record_is_at_hand_after_a_seek_or_in_a_pause(it: PartitionReader) -> None:
    it.add(stored(0, b"a", b"b", b"c"))
    it.take(1)
    it.is_paused = True
    assert it.next_record() is None
    it.is_paused = False
    it.seek(0)
    assert it.next_record() is None


def test_what_an_answer_hides_is_passed_over_and_its_position_counts() -> None:
    aborted = stored(0, b"a", b"b", transaction_of=7)
    committed = stored(2, b"c", transaction_of=8)
    it = reader()
    it.add(aborted + committed, AbortedTransactions([(7, 0)]))
    assert (drain(it), it.position) == ([b"c"], 3)
    it.add(stored(3, b"d", transaction_of=7), AbortedTransactions([(7, 0)]))
    assert (drain(it), it.position) == ([], 4)
    it.seek(1)
    it.add(aborted + committed)
    assert drain(it) == [b"b", b"c"]


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


def test_whole_batches_are_taken_as_columns_without_a_copy_and_gaps_end_past_the_batch() -> None:
    it = reader()
    it.add(stored(0, b"a", b"b") + stored(2, b"marker", is_control=True) + stored(3, b"c"))
    columns = it.take_columns(100)
    assert [list(each.values) for each in columns] == [[b"a", b"b"], [b"c"]]
    assert (it.position, it.take_columns(1)) == (4, [])


def test_a_corrupt_batch_is_an_error_for_columns_too() -> None:
    good, bad = stored(0, b"a"), bytearray(stored(1, b"b"))
    bad[-2] ^= 1
    it = reader()
    it.add(good + bytes(bad))
    assert [list(each.values) for each in it.take_columns(100)] == [[b"a"]]
    assert isinstance(it.error, CorruptRecordError)
    assert (it.position, it.has_unread) == (1, False)
