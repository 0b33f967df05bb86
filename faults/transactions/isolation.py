"""The history of a trial of transactions, as lists and registers. Pure.

A partition of outputs is a list: a transaction appends its outputs, a reader of committed records reads the
list from its begin on. The committed offset of an input partition is a register: a transaction reads it as it
begins, by the first offset of its inputs, and writes it as it commits. Only transactions whose outputs are
visible count there, because an offset does not say who committed it.
"""

from collections import defaultdict
from collections.abc import Hashable

from faults.histories import kafka_order, rw_register
from faults.histories.history import Anomaly, Outcome, Read, Transaction, Write
from faults.transactions.history import Attempt, AttemptId, History, outputs_of
from faults.transactions.history import Outcome as AttemptOutcome


def check(history: History) -> list[Anomaly]:
    """Every anomaly that Kafka excludes."""
    named = sorted(history.attempts.items(), key=lambda each: each[1].begun_s)
    visible = {output.attempt for log in history.visible.values() for _, output in log if output is not None}
    updates = [_update(*each) for each in named if each[0] in visible]
    versions: dict[Hashable, set[int]] = defaultdict(set)
    for each in updates:
        for operation in each.operations:
            if isinstance(operation, Write):
                versions[operation.key].add(operation.value)
    orders = {key: (None, *sorted(offsets)) for key, offsets in versions.items()}
    appends = [_append(*each) for each in named]
    return [*kafka_order.check([*appends, *_reads(history)], updates), *rw_register.check(updates, orders)]


def facts_of(history: History) -> list[str]:
    """What `check` had."""
    outputs = sum(len(each.sources) for each in history.attempts.values())
    return [
        f"{len(history.attempts):,} transactions with {outputs:,} inputs; {len(history.inputs)} committed"
        f" offsets as registers, {len(history.visible)} partitions as lists, {len(_reads(history)):,} reads"
    ]


def _outcome(attempt: Attempt) -> Outcome:
    if attempt.outcome is AttemptOutcome.COMMITTED:
        return Outcome.COMMITTED
    return Outcome.UNCERTAIN if attempt.outcome.may_be_visible else Outcome.ABORTED


def _append(name: AttemptId, attempt: Attempt) -> Transaction:
    writes = tuple(Write(output.place, output) for output in outputs_of(name, attempt.sources))
    return Transaction(str(name), writes, _outcome(attempt), session=name.slot)


def _update(name: AttemptId, attempt: Attempt) -> Transaction:
    offsets: dict[int, list[int]] = defaultdict(list)
    for partition, offset in attempt.sources:
        offsets[partition].append(offset)
    operations: list[Read | Write] = []
    for partition, several in offsets.items():
        key = f"offset of input {partition}"
        operations += [Read(key, min(several) or None), Write(key, max(several) + 1)]
    return Transaction(str(name), tuple(operations))


def _reads(history: History) -> list[Transaction]:
    logs = {**history.followed, "the reader at the end": history.visible}
    return [
        Transaction(name, tuple(Read(place, tuple(each.mark for each in log)) for place, log in read.items()))
        for name, read in logs.items()
    ]
