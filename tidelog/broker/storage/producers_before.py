"""What a log knew of its producers before one of its offsets, from what it knows now.

Owns that table, which a follower begins with that gets a leader's log from there on only. Invariant: with it,
the batches from that offset on make the same table as the leader's: the window of five batches has those
before the offset that no later ones have replaced.

Pure; in any thread, on a frozen table.
"""

from dataclasses import replace

from tidelog.broker.storage.producer_table import FrozenTable, ProducerTable, entries_of
from tidelog.protocol.types import NO_OFFSET


def producers_before(frozen: FrozenTable, offset: int) -> FrozenTable:
    """The producers as of `offset`, at which a batch begins; none that only later batches name."""
    table = ProducerTable()
    for entry in entries_of(frozen):
        batches = [batch for batch in entry.batches if batch.last_offset < offset]
        began = entry.current_txn_start_offset
        if began >= offset:
            began = NO_OFFSET
        if not batches and began == NO_OFFSET and entry.batches and entry.coordinator_epoch < 0:
            continue
        slot = table.add(entry.producer_id, entry.producer_epoch)
        for batch in batches:
            table.push(slot, entry.producer_epoch, batch, entry.last_append_ms)
        table.mark(slot, entry.producer_epoch, entry.coordinator_epoch, began, entry.last_append_ms)
    return replace(table.view(), clock_ms=frozen.clock_ms, evicted=frozen.evicted)
