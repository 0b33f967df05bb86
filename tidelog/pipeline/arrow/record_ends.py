"""Where records end. Unlike other fields, this must be computed record after record.

Owns the loops over the length prefixes of record batches, version 2. Records of one size are taken in runs.
Other batches are cut where a record seems to begin. The pieces are read in parallel, one record of each per
step. If neither way is sure to be right, a plain loop over the bytes repeats the work.

Invariants: a fast way's result is that of the plain loop, or it is not used. What the plain loop refuses
raises ProtocolError.
"""

import numpy as np

from tidelog.pipeline.arrow.vectors import SMALLEST_RECORD_BYTES, Flags, Integers, Octets
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records.varints import MAX_VARLONG_BYTES, decode_varint, encode_varint

# With fewer pieces, one parallel step costs more than one plain step for each piece.
_FEWEST_LANES = 24
# For smaller batches, the parallel way costs less than runs.
_FEWEST_IN_RUNS = 192
_PROBED_RECORDS = 4
# The number of records that a run first compares with the size of the first; then it compares more while they
# match. Runs shorter than _SHORT_RUN do not pay.
_FIRST_LOOK = 1024
_MOST_LOOK = 1 << 20
_SHORT_RUN = 16
_MOST_SHORT_RUNS = 3
# Records per piece of a batch, and how far the start of a piece is searched around its expected position, in
# records of average size.
_PIECE_RECORDS = 128
_SEARCHED_RECORDS = 20


def record_places(
    data: Octets, starts: Integers, ends: Integers, counts: Integers
) -> tuple[Integers, Integers]:
    """The start and end of each record in `data`, batch after batch.

    The uncompressed records of batch n are in bytes starts[n] to ends[n]; their number is counts[n]. Raises
    ProtocolError unless they fill these bytes exactly. `vectors.read_fields` checks the lengths otherwise.
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
    is_sure = np.zeros(len(counts), np.bool_)
    for batch in _uniform_ones(data, starts, counts).tolist():
        own = found[slots[batch] : slots[batch] + counts[batch]]
        is_sure[batch] = _take_runs(data, int(starts[batch]), int(ends[batch]), own)
    rest = np.flatnonzero(~is_sure)
    if rest.size:
        is_sure[rest] = _walk_pieces(data, starts[rest], ends[rest], counts[rest], slots[rest], found)
    for batch in np.flatnonzero(~is_sure).tolist():
        payload = data[starts[batch] : ends[batch]].tobytes()
        slot, count = int(slots[batch]), int(counts[batch])
        found[slot : slot + count] = np.array(walk(payload, count), np.int64) + starts[batch]
    begins = np.empty_like(found)
    begins[1:] = found[:-1]
    begins[slots[counts > 0]] = starts[counts > 0]
    return begins, found


def walk(payload: bytes, record_count: int) -> list[int]:
    """The end of each of `record_count` records in `payload`, the uncompressed records of one batch.

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
        raise ProtocolError(f"a record starts at byte {position} of {len(payload)}") from None
    if position != len(payload):
        raise ProtocolError(f"{record_count} records end at byte {position} of {len(payload)}")
    return ends


def _steps() -> Integers:
    """By the first two bytes of a record (little-endian): its size with the length prefix. It is 0 if the
    prefix is longer than two bytes or negative; then the loop ends at a wrong position and is not used."""
    first, second = np.arange(65536) & 255, np.arange(65536) >> 8
    short = first < 128
    zigzag = np.where(short, first, first & 127 | second << 7)
    is_sure = (zigzag & 1 == 0) & (short | (second < 128))
    return np.where(is_sure, np.where(short, 1, 2) + (zigzag >> 1), 0)


_STEPS: Integers = _steps()


def _uniform_ones(data: Octets, starts: Integers, counts: Integers) -> Integers:
    """The batches that begin with some records of one size, and have so many that a run is worth finding."""
    chosen = np.flatnonzero(counts >= _FEWEST_IN_RUNS)
    positions, sizes = starts[chosen], None
    for _ in range(_PROBED_RECORDS):
        positions = np.minimum(positions, len(data) - 2)
        found = _STEPS[data[positions + 1].astype(np.int64) << 8 | data[positions]]
        is_alike = found > 0 if sizes is None else found == sizes
        chosen, sizes = chosen[is_alike], found[is_alike]
        positions = positions[is_alike] + sizes
    return chosen


def _take_runs(data: Octets, start: int, end: int, found: Integers) -> bool:
    """Fill `found` with the ends of a batch's records, in runs of one size. False if the runs are short, or
    the records do not end with the batch; then `found` is invalid."""
    position, taken, short_runs, look = start, 0, 0, _FIRST_LOOK
    while taken < len(found):
        if end - position < SMALLEST_RECORD_BYTES:
            return False
        size = int(_STEPS[int(data[position]) | int(data[position + 1]) << 8])
        count = min(len(found) - taken, look, (end - position) // max(size, 1))
        if not size or not count:
            return False
        behind = position + count * size
        prefixes = data[position:behind:size]
        same = prefixes == prefixes[0]
        if prefixes[0] > 127:
            seconds = data[position + 1 : behind : size]
            same &= seconds == seconds[0]
        look = min(4 * look, _MOST_LOOK)
        if not same.all():
            count, look = int(np.argmin(same)), _FIRST_LOOK
            short_runs += 1 if count < _SHORT_RUN else -1
            if short_runs == _MOST_SHORT_RUNS:
                return False
        found[taken : taken + count] = np.arange(1, count + 1) * size + position
        position += count * size
        taken += count
    return position == end


def _walk_pieces(
    data: Octets, starts: Integers, ends: Integers, counts: Integers, slots: Integers, found: Integers
) -> Flags:
    """Read many batches in parallel. Returns for each batch whether its result is sure to be right."""
    if int(np.maximum(counts // _PIECE_RECORDS, 1).sum()) < _FEWEST_LANES:
        return np.zeros(len(counts), np.bool_)
    cuts = [
        (batch, number, position)
        for batch in np.flatnonzero(counts >= 2 * _PIECE_RECORDS).tolist()
        for number, position in _cuts(data, int(starts[batch]), int(ends[batch]), int(counts[batch]))
    ]
    # The first piece of each batch begins at the batch's start.
    whole = np.column_stack((np.arange(len(counts)), np.zeros(len(counts), np.int64), starts))
    pieces = np.concatenate((whole, np.array(cuts, np.int64).reshape(-1, 3)))
    if len(pieces) < _FEWEST_LANES:
        return np.zeros(len(counts), np.bool_)
    batches, numbers, begins = pieces[np.lexsort((pieces[:, 1], pieces[:, 0]))].T
    is_last = np.append(batches[1:] != batches[:-1], True)
    sizes = np.where(is_last, counts[batches], np.roll(numbers, -1)) - numbers
    stops = np.where(is_last, ends[batches], np.roll(begins, -1))
    # The pieces with most records come first, so the unfinished pieces are always the first ones.
    order = np.argsort(-sizes, kind="stable")
    positions, taken = begins[order], np.zeros(len(order), np.int64)
    places = (slots[batches] + numbers)[order]
    try:
        _walk_together(data, positions, taken, sizes[order], places, found)
    except IndexError:
        taken[:] = -1
    is_right = (taken == sizes[order]) & (positions == stops[order])
    # A piece that met a prefix of size 0 stopped moving, perhaps exactly at its end.
    several = np.flatnonzero(taken > 1)
    last = places[several] + taken[several] - 1
    is_right[several] &= found[last] > found[last - 1]
    is_right[taken == 1] &= (positions > begins[order])[taken == 1]
    is_sure = np.ones(len(counts), np.bool_)
    is_sure[batches[order][~is_right]] = False
    return is_sure


def _cuts(data: Octets, start: int, end: int, count: int) -> list[tuple[int, int]]:
    """Numbers of records of one batch, in ascending order, and where each seems to start."""
    payload = data[start:end].tobytes()
    around = len(payload) // count * _SEARCHED_RECORDS
    found = []
    before, position = 0, 0
    pieces = count // _PIECE_RECORDS
    for number in (count * piece // pieces for piece in range(1, pieces)):
        middle = position + (len(payload) - position) * (number - before) // (count - before)
        place = _find_record(payload, number, max(middle - around, position + 1), middle + around)
        if place > position:
            found.append((number, start + place))
            before, position = number, place
    return found


def _find_record(payload: bytes, number: int, begin: int, end: int) -> int:
    """Where the record with offset delta `number` seems to start; -1 if no record seems to follow it."""
    delta, following = encode_varint(number), encode_varint(number + 1)
    at = payload.find(delta, begin, end)
    while at >= 0:
        attributes = at - 2
        while attributes > 0 and payload[attributes] > 127:
            attributes -= 1
        # Bytes of the record before may look like the beginning of the length.
        for width in (1, 2, 3):
            start = attributes - width
            if start <= 0 or payload[attributes] or (width > 1 and payload[start] < 128):
                break
            if _offset_follows(payload, start, attributes, following):
                return start
        at = payload.find(delta, at + 1, end)
    return -1


def _offset_follows(payload: bytes, start: int, attributes: int, offset_delta: bytes) -> bool:
    """Whether a length is between `start` and `attributes`, and a record with that delta follows it."""
    try:
        length, behind = decode_varint(payload, start)
        if behind != attributes or length <= 0:
            return False
        _, behind = decode_varint(payload, attributes + length)
        _, behind = decode_varint(payload, behind + 1, MAX_VARLONG_BYTES)
    except ProtocolError:
        return False
    return payload.startswith(offset_delta, behind)


def _walk_together(
    data: Octets, positions: Integers, taken: Integers, counts: Integers, slots: Integers, found: Integers
) -> None:
    """Loops while enough pieces have a record left. Moves `positions`, counts in `taken`, and stores each
    end in `found`. Raises IndexError if a record starts after the data."""
    step = 0
    for count in np.unique(counts).tolist():
        lanes = int(np.searchsorted(-counts, -count, side="right"))
        # The plain loop repeats the unfinished pieces.
        if (count - step) * _FEWEST_LANES > count * lanes:
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
