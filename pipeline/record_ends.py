"""Where records end: the one thing about them that must be found out one after the other.

Owns the walk along the length prefixes of record batches, version 2. Many batches are walked side by side, a
record of each at a time; what that way cannot be sure of, a plain loop over the bytes does again.

Invariants: the ends found side by side are those of the plain loop, or they are not used: steps only go
forward, and each batch's last must end exactly where the batch does. What the plain loop refuses raises
ProtocolError. Called by `pipeline.columnar` only.
"""

import numpy as np

from pipeline.vectors import SMALLEST_RECORD_BYTES, Integers, Octets
from protocol.errors import ProtocolError
from protocol.records.varints import decode_varint

# With fewer batches at once, a step of all costs more than one of each in the plain loop.
_FEWEST_LANES = 24


def record_places(
    data: Octets, starts: Integers, ends: Integers, counts: Integers
) -> tuple[Integers, Integers]:
    """Where each record of some batches starts and ends in `data`, batch after batch.

    The uncompressed records of batch n lie in bytes starts[n] to ends[n], and are to be counts[n]. Raises
    ProtocolError unless they fill them exactly; lengths are not judged otherwise: `vectors.read_fields` does.
    """
    impossible = (counts < 0) | (counts > (ends - starts) // SMALLEST_RECORD_BYTES)
    if impossible.any():
        batch = int(np.argmax(impossible))
        raise ProtocolError(
            f"{counts[batch]} records cannot lie in {ends[batch] - starts[batch]} bytes (from byte"
            f" {starts[batch]} on)"
        )
    found = np.empty(int(counts.sum()), np.int64)
    slots = np.cumsum(counts) - counts
    # Those with most records first, so that the batches which have one left are always the first ones.
    order = np.argsort(-counts, kind="stable")
    positions, taken = starts[order], np.zeros(len(order), np.int64)
    try:
        _walk_together(data, positions, taken, counts[order], slots[order], found)
    except IndexError:
        taken[:] = -1
    begins = _begins(found, starts, slots, counts)
    is_sure = np.empty(len(counts), np.bool_)
    is_sure[order] = taken == counts[order]
    is_sure[order] &= positions == ends[order]
    # A walk that did not know how to go on stood still, which may have been at the very end.
    is_sure[np.repeat(np.arange(len(counts)), counts)[begins == found]] = False
    unsure = np.flatnonzero(~is_sure).tolist()
    for batch in unsure:
        payload = data[starts[batch] : ends[batch]].tobytes()
        slot, count = int(slots[batch]), int(counts[batch])
        found[slot : slot + count] = np.array(walk(payload, count), np.int64) + starts[batch]
    return _begins(found, starts, slots, counts) if unsure else begins, found


def _begins(found: Integers, starts: Integers, slots: Integers, counts: Integers) -> Integers:
    """Where each record starts: where the one before it ends, the first where its batch's records do."""
    begins = np.empty_like(found)
    begins[1:] = found[:-1]
    begins[slots[counts > 0]] = starts[counts > 0]
    return begins


def walk(payload: bytes, record_count: int) -> list[int]:
    """Where each of `record_count` records ends in `payload`, the uncompressed records of one batch.

    Raises ProtocolError unless they fill it exactly.
    """
    ends: list[int] = []
    add = ends.append
    position = 0
    try:
        for _ in range(record_count):
            first = payload[position]
            if first < 128:
                position += 1 + (first >> 1)
            elif (second := payload[position + 1]) < 128:
                position += 2 + ((first & 127 | second << 7) >> 1)
            else:
                length, after = decode_varint(payload, position)
                if length < 0:
                    raise ProtocolError(f"record at byte {position}: length {length}")
                position = after + length
            add(position)
    except IndexError:
        raise ProtocolError(f"a record starts at byte {position}, behind {len(payload)} bytes") from None
    if position != len(payload):
        raise ProtocolError(f"{record_count} records end at byte {position} of {len(payload)}")
    return ends


def _steps() -> Integers:
    """By the first two bytes of a record (little-endian): its size with the length prefix, 0 where that is
    longer than two bytes or negative, so that the walk ends in the wrong place and is not believed."""
    first, second = np.arange(65536) & 255, np.arange(65536) >> 8
    short = first < 128
    zigzag = np.where(short, first, first & 127 | second << 7)
    is_sure = (zigzag & 1 == 0) & (short | (second < 128))
    return np.where(is_sure, np.where(short, 1, 2) + (zigzag >> 1), 0)


_STEPS: Integers = _steps()


def _walk_together(
    data: Octets, positions: Integers, taken: Integers, counts: Integers, slots: Integers, found: Integers
) -> None:
    """Walk as long as enough batches have a record left. Moves `positions`, counts in `taken`, and stores
    each end in `found`. Raises IndexError when a record starts behind the data."""
    step = 0
    for count in np.unique(counts).tolist():
        lanes = int(np.searchsorted(-counts, -count, side="right"))
        if lanes < _FEWEST_LANES:
            return
        at, slot = positions[:lanes], slots[:lanes] + step
        while step < count:
            code = data[at + 1].astype(np.int64)
            code <<= 8
            code |= data[at]
            at += _STEPS[code]
            found[slot] = at
            slot += 1
            step += 1
        taken[:lanes] = step
