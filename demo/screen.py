"""What the demo shows: a live display on a terminal, plain lines elsewhere.

Owns all output. The rest of the demo only gives it facts and never prints.
"""

from collections import deque

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from demo.shipment import Tally
from demo.verdict import KeyVerdict, total
from tidelog.pipeline.jobs.audit import AuditReport

_EVENTS_SHOWN = 8
_LINES_SHOWN = 10


class Screen:
    """Prints facts as lines. Use `shipping()` as a context while the shipment runs."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._events: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._tally = Tally(1)
        self._shown = 0
        self._live: Live | None = None
        self._bars = Progress(
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )

    def say(self, text: str) -> None:
        """One line about the next step."""
        self.console.print(text, soft_wrap=True)

    def event(self, text: str) -> None:
        """A fault that has happened."""
        self._events.append(text)
        if self._live is None:
            self.console.print(f"  {text}", soft_wrap=True)
        else:
            self._live.update(self._picture())

    def start(self, events: int) -> None:
        """The shipment of `events` begins."""
        self._tally = Tally(events)
        if self.console.is_terminal:
            self._bars.add_task("sent", total=events)
            self._bars.add_task("acknowledged", total=events)
            self._live = Live(self._picture(), console=self.console, refresh_per_second=10)
            self._live.start()

    def update(self, tally: Tally) -> None:
        """The present state of the shipment."""
        self._tally = tally
        if self._live is not None:
            self._bars.update(self._bars.task_ids[0], completed=tally.sent)
            self._bars.update(self._bars.task_ids[1], completed=tally.acked)
            self._live.update(self._picture())
        elif tally.acked * _LINES_SHOWN // tally.events > self._shown:
            self._shown = tally.acked * _LINES_SHOWN // tally.events
            self.console.print(_counts(tally), soft_wrap=True)

    def stop(self) -> None:
        """The shipment has ended, with or without success."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def verdict(self, verdicts: list[KeyVerdict]) -> None:
        """The table of the judge's findings, wrong cells in red."""
        table = Table(
            title="What the topic holds, read back by Spark", title_justify="left", box=box.SIMPLE_HEAD
        )
        table.add_column("carrier")
        for heading in ("expected", "stored", "duplicated", "missing", "out of order", "content"):
            table.add_column(heading, justify="right")
        for each in verdicts:
            table.add_row(*_cells(each))
        table.add_section()
        table.add_row(*_cells(total(verdicts)), style="bold")
        self.console.print(table)

    def audit(self, report: AuditReport) -> None:
        """What the sequence numbers in the segment files prove, in one line."""
        judged = report.records - report.unidentified
        producers = f"{report.producers:,} producer{'' if report.producers == 1 else 's'}"
        read = f"Audit of the segment files: {judged:,} records of {producers}"
        if not judged:
            self.say(
                f"Audit of the segment files: {report.records:,} records, none with a producer id:"
                " without idempotence there is nothing to prove by."
            )
        elif report.is_clean:
            self.say(f"{read}: [green]every sequence number once, none missing, all in order.[/green]")
        else:
            found = ", ".join(f"{count:,} {kind}" for kind, count in report.findings.items() if count)
            self.say(f"{read}: [red]{found}.[/red]")

    def _picture(self) -> Group:
        events = [Text(f"  {text}", style="dim", overflow="ellipsis", no_wrap=True) for text in self._events]
        return Group(self._bars, Text(_counts(self._tally), style="bold"), *events)


def _counts(tally: Tally) -> str:
    return (
        f"sent {tally.sent:,} · acknowledged {tally.acked:,}"
        f" · batches {tally.batches:,}, sent again {tally.sent_again:,}"
        f" · acks dropped {tally.acks_dropped:,} · cut {tally.cut:,} · kill -9 {tally.kills}"
    )


def _cells(verdict: KeyVerdict) -> list[str]:
    findings = (verdict.duplicated, verdict.missing, verdict.out_of_order)
    marked = [f"[red]{count:,}[/red]" if count else "0" for count in findings]
    wrong = verdict.altered + verdict.invented
    content = f"[red]{wrong:,} wrong[/red]" if wrong else "[green]same[/green]"
    return [verdict.key, f"{verdict.expected:,}", f"{verdict.stored:,}", *marked, content]
