"""The report of a run: what each kind of trial tried, found and left out, and tables about the crashes.

Owns all output of the fault runner. All other modules only return facts.
"""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from faults.checker import REFUSED, UNCERTAIN, Finding, Ledger, is_acked
from faults.foreign_readers import READERS
from faults.runner import Result
from faults.trial import Outcome, Trial

_EXAMPLES = 8


def report(trial: Trial, outcome: Outcome, seconds: float, console: Console) -> None:
    """Print what became of one kind of trial."""
    tried = ", ".join(f"{count:,} × {what}" for what, count in outcome.tried.most_common()) or "nothing"
    verdict = (
        f"[red]{len(outcome.findings):,} findings[/red]" if outcome.findings else "[green]no findings[/green]"
    )
    console.print(f"[bold]{trial.title}[/bold] ({seconds:.0f} s): {verdict}", soft_wrap=True)
    console.print(f"  tried: {tried}", soft_wrap=True, markup=False)
    for line in outcome.figures:
        console.print(f"  {line}", soft_wrap=True, markup=False)
    for reason in outcome.left_out:
        console.print(f"  left out: {reason}", soft_wrap=True, markup=False)
    _print_findings(outcome.findings, console)


def print_tables(result: Result, console: Console) -> None:
    """What a run of crashes survived and stored."""
    console.print(_faults(result), _records(result.ledgers))
    console.print(
        f"{result.records_stored:,} records in {result.batches:,} batches and {result.segments} segments,"
        f" read back with {', '.join(('our client', *READERS))} and from the files;"
        f" {result.records_followed:,} read along."
    )
    console.print(
        f"A compacted topic was cleaned {result.cleans:,} times; {result.ended_in_cleans:,} times the broker"
        f" was killed within a clean. Of another one records were deleted {result.trimmed.total():,} times"
        " within a clean."
    )
    for oddity, count in sorted(result.oddities.items()):
        console.print(f"  {count:>6,} × {oddity}", soft_wrap=True, markup=False)


def _print_findings(findings: Sequence[Finding], console: Console) -> None:
    for kind, count in Counter(finding.kind for finding in findings).most_common():
        console.print(f"[red]{kind}: {count:,}[/red]", soft_wrap=True)
        examples = [finding.text for finding in findings if finding.kind is kind][:_EXAMPLES]
        for text in examples:
            console.print(f"  {text}", soft_wrap=True, markup=False)
        if count > len(examples):
            console.print(f"  … and {count - len(examples):,} more")


def _faults(result: Result) -> Table:
    table = Table("fault", "times", box=box.SIMPLE_HEAD, title="Survived")
    table.columns[1].justify = "right"
    for kind, count in sorted(result.steps.items()):
        table.add_row(kind, f"{count:,}")
    network = result.network
    table.add_section()
    for what, count in (
        ("acknowledgements and other answers lost", network.responses_dropped),
        ("requests lost", network.requests_dropped),
        ("connections cut", network.connections_cut),
        ("connections refused", network.connections_refused + network.upstream_failures),
        ("starts of the broker", result.broker_starts),
        ("bytes lost in power cuts", result.bytes_lost),
    ):
        table.add_row(what, f"{count:,}")
    return table


def _records(ledgers: Sequence[Ledger]) -> Table:
    heads = ("writer", "producers", "sent", "acknowledged", "uncertain", "not stored")
    table = Table(*heads, box=box.SIMPLE_HEAD, title="Records")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in dict.fromkeys(ledger.name for ledger in ledgers):
        own = [ledger for ledger in ledgers if ledger.name == name]
        counts = (
            sum(ledger.count(lambda fate: True) for ledger in own),
            sum(ledger.count(is_acked) for ledger in own),
            sum(ledger.count(lambda fate: fate == UNCERTAIN) for ledger in own),
            sum(ledger.count(lambda fate: fate == REFUSED) for ledger in own),
        )
        table.add_row(name, str(len(own)), *(f"{count:,}" for count in counts))
    return table
