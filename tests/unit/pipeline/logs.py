"""A data folder as the broker lays it out, for tests that read segment files."""

from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from tidelog.pipeline.segments.data_folders import CLEAN_SHUTDOWN
from tidelog.protocol.records import read_batch_header

_INDEX_ENTRY = Struct(">ii")


def write_log(
    data_folder: Path,
    topic: str,
    partition: int,
    batches: Sequence[bytes | bytearray],
    *,
    batches_a_segment: int = 1_000_000,
    batches_an_entry: int = 2,
) -> list[Path]:
    """The segment files with `batches`, whose offsets must follow each other, and their indexes.

    The folder gets the marker of a clean shutdown.
    """
    folder = data_folder / f"{topic}-{partition}"
    folder.mkdir(parents=True)
    (data_folder / CLEAN_SHUTDOWN).touch()
    paths = []
    for first in range(0, len(batches), batches_a_segment):
        own = batches[first : first + batches_a_segment]
        base = read_batch_header(own[0]).base_offset
        index, position = b"", 0
        for number, batch in enumerate(own):
            if number % batches_an_entry == batches_an_entry - 1:
                index += _INDEX_ENTRY.pack(read_batch_header(batch).last_offset - base, position)
            position += len(batch)
        path = folder / f"{base:020d}.log"
        path.write_bytes(b"".join(own))
        path.with_suffix(".index").write_bytes(index)
        paths.append(path)
    return paths
