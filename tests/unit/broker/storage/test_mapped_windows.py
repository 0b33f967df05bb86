"""Mapped bytes of a segment: which bytes are mapped, for how long, and what has to be read."""

import gc
import os
import random
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.unit.broker.storage.support import FaultyDisk, append, keyed, open_log
from tidelog.broker.storage import disk as disk_module
from tidelog.broker.storage import local_segment
from tidelog.broker.storage.disk import Disk, MappedWindow, OpenFile, in_memory
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import Buffer

WINDOW, OVERLAP = 64 * 1024, 16 * 1024
CONTENT = random.Random(5).randbytes(3 * WINDOW + OVERLAP)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WINDOW_BYTES", WINDOW), ("_OVERLAP_BYTES", OVERLAP)):
        monkeypatch.setattr(disk_module, name, value)
    monkeypatch.setattr(local_segment, "LEAST_MAPPED_BYTES", 1)


def opened(path: Path, disk: Disk) -> OpenFile:
    return OpenFile(disk, path, disk.open(path))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OpenFile]:
    (tmp_path / "file").write_bytes(CONTENT)
    file = opened(tmp_path / "file", Disk())
    yield file
    file.close()


def mapped(file: OpenFile, size: int, position: int) -> memoryview:
    view = file.mapped(size, position)
    assert view is not None
    assert isinstance(view.obj, MappedWindow)
    return view


def windows(file: OpenFile) -> list[int]:
    """The numbers of its windows that are mapped."""
    return [number for owner, number in disk_module._windows if owner is file]


def test_views_have_the_bytes_of_the_file(file: OpenFile) -> None:
    for position, size in ((0, 10), (100, WINDOW), (WINDOW - 7, OVERLAP), (3 * WINDOW - 1, OVERLAP + 1)):
        assert bytes(mapped(file, size, position)) == CONTENT[position : position + size]


def test_what_no_window_holds_whole_is_read(file: OpenFile) -> None:
    assert file.mapped(OVERLAP + 8, WINDOW - 7) is None
    assert file.mapped(OVERLAP, 3 * WINDOW) is None, "the file ends within this window"
    os.ftruncate(file.fd, 4 * WINDOW + OVERLAP)
    file.disk.writev(file.fd, [b"x" * OVERLAP], 3 * WINDOW)
    assert bytes(mapped(file, OVERLAP, 3 * WINDOW)) == b"x" * OVERLAP


def test_what_is_not_in_the_page_cache_is_read(tmp_path: Path) -> None:
    file = opened(tmp_path / "file", Disk())
    os.ftruncate(file.fd, WINDOW + OVERLAP)  # No page of it is anywhere yet.
    file.disk.writev(file.fd, [b"x" * 10_000], 0)
    assert bytes(mapped(file, 10_000, 0)) == b"x" * 10_000
    assert file.mapped(10_000, 5_000) is None
    file.close()


def test_reads_that_a_test_makes_fail_are_not_replaced_by_mappings(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    file = opened(tmp_path / "file", FaultyDisk())
    assert file.mapped(10, 0) is None
    file.close()


def test_a_closed_file_is_mapped_no_more(file: OpenFile) -> None:
    view = mapped(file, 10, 0)
    window = weakref.ref(view.obj)
    file.close()
    del view
    gc.collect()
    assert window() is None
    assert file.mapped(10, 0) is None
    assert windows(file) == []


def test_only_the_windows_used_last_stay_mapped(file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "_MOST_WINDOWS", 2)
    for number in (0, 1, 0, 2):
        mapped(file, 10, number * WINDOW)
    assert windows(file) == [0, 2]


class ClosesMeanwhile(dict[tuple[OpenFile, int], MappedWindow]):
    """Windows of which another thread closes a file, as soon as they are looked through."""

    file: OpenFile
    thread: Thread | None = None

    def __iter__(self) -> Iterator[tuple[OpenFile, int]]:
        found = super().__iter__()
        if self.thread is None:
            self.thread = Thread(target=self.file.close)
            self.thread.start()
            self.thread.join(0.1)
        return found


def test_a_file_may_be_closed_by_a_thread_while_another_one_is_mapped(
    file: OpenFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").write_bytes(CONTENT)
    windows = ClosesMeanwhile()
    windows.file = opened(tmp_path / "other", Disk())
    monkeypatch.setattr(disk_module, "_windows", windows)
    monkeypatch.setattr(disk_module, "_MOST_WINDOWS", 1)
    mapped(windows.file, 10, 0)
    assert bytes(mapped(file, 10, 0)) == CONTENT[:10]
    assert windows.thread is not None
    windows.thread.join()
    assert [*windows] == [(file, 0)]


def test_windows_take_a_small_part_of_the_file_handles(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "handle_limit", lambda _: 128)
    for number in (0, 1, 2):
        mapped(file, 10, number * WINDOW)
    assert windows(file) == [1, 2]


def test_what_is_left_of_mapped_bytes_is_read_from_the_file(file: OpenFile) -> None:
    views = [mapped(file, 1000, position) for position in (WINDOW + 5, 2 * WINDOW + 9)]
    answer: list[Buffer] = [b"head", *views, b"", b"tail"]
    whole = b"".join(answer)
    for sent_bytes in (0, 3, 4, 5, 1003, 1004, 1500, 2005, len(whole)):
        left = in_memory(answer, sent_bytes)
        assert b"".join(left) == whole[sent_bytes:]
        assert not any(isinstance(each, memoryview) and isinstance(each.obj, MappedWindow) for each in left)
    os.ftruncate(file.fd, 2 * WINDOW)
    with pytest.raises(OSError, match="ends within 1000 bytes"):
        in_memory(answer)
    file.close()
    with pytest.raises(OSError, match="was closed"):
        in_memory(answer)


def test_a_log_maps_only_what_is_checked_and_only_sent(tmp_path: Path) -> None:
    log = open_log(tmp_path, disk=Disk())
    value = b"x" * 10_000
    while log.end_offset * len(value) < 2 * WINDOW:
        append(log, keyed([(None, value)]))
    end_offset = log.end_offset
    wanted = Read(1, 30_000, end_offset, nowait=True)

    def read(wanted: Read) -> memoryview:
        (data,) = log.read(wanted).records
        return data

    in_memory_bytes = read(wanted)
    assert not isinstance(in_memory_bytes.obj, MappedWindow)
    assert not isinstance(read(wanted._replace(is_sent=True, nowait=False)).obj, MappedWindow)
    found = read(wanted._replace(is_sent=True))
    assert isinstance(found.obj, MappedWindow)
    assert found == in_memory_bytes
    first = wanted._replace(offset=0, is_sent=True)
    assert isinstance(read(first).obj, MappedWindow)
    (segment,) = log._segments.segments
    with segment.path.open("r+b") as damaged:
        damaged.write(bytes(24))
    with pytest.raises(ApiError) as refused:
        read(first)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    segment.unverified = (0, segment.size_bytes)
    assert not isinstance(read(wanted._replace(is_sent=True)).obj, MappedWindow)
    log.close(clean=True)
