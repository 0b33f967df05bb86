"""Checks that the index of aborted transactions of a segment names those that the log shows, and no others.

Owns the comparison with the replay of `producers`. Of a transaction that began before the log's first batch,
or where compaction took batches, the log does not show where it began. Entries of markers beyond the recovery
point may be missing, and may be left over: the next start makes them again.
"""

from collections.abc import Sequence
from pathlib import Path

from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.open_transactions import EndedTransaction
from tidelog.broker.storage.transaction_index import decode_entries
from tidelog.broker.storage.verification.findings import Findings, Severity


def check_aborted(
    disk: Disk,
    path: Path,
    name: str,
    shown: Sequence[EndedTransaction],
    *,
    first_offset: int,
    trusted: int,
    findings: Findings,
) -> None:
    """`shown` holds what the log's markers in this segment aborted. The log holds every batch from
    `first_offset` on, and all was durable up to `trusted`. Raises OSError."""
    stored, problem = decode_entries(disk.read_file(path)) if disk.exists(path) else ([], "")
    if problem:
        is_durable = not shown or shown[-1].last_offset < trusted
        findings.add(Severity.DAMAGE if is_durable else Severity.WARNING, name, problem)
        return
    in_log = {ended.last_offset: ended for ended in shown}
    for entry in stored:
        found = in_log.pop(entry.last_offset, None)
        severity = Severity.DAMAGE if entry.last_offset < trusted else Severity.WARNING
        began_before = entry.first_offset < first_offset
        if found is None:
            if not began_before:
                problem = "the log has no such aborted transaction"
                findings.add(severity, name, problem, found=_shown(entry))
        elif (
            entry.producer_id != found.producer_id
            or (entry.first_offset != found.first_offset and not began_before)
            or entry.last_stable_offset > found.last_stable_offset
        ):
            problem = "an aborted transaction differs from the log"
            findings.add(severity, name, problem, expected=_shown(found), found=_shown(entry))
    for missing in in_log.values():
        if missing.last_offset < trusted:
            problem = "an aborted transaction is missing: consumers of committed records would read it"
            findings.damage(name, problem, expected=_shown(missing))


def _shown(ended: EndedTransaction) -> str:
    return (
        f"producer {ended.producer_id} at offsets {ended.first_offset}..{ended.last_offset},"
        f" last stable offset {ended.last_stable_offset}"
    )
