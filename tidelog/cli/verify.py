"""`tidelog log verify`: checks a whole data folder, and shows what is wrong and where.

Each finding is printed at once on standard output. Exits with 1 when anything is damaged. Warnings (what a
crash leaves, what an earlier start set aside) do not change the exit code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.failures import Failure, broker_failures

if TYPE_CHECKING:
    from tidelog.broker.data_folder.verification import Finding, FolderTotals


def verify(
    data_dir: Annotated[Path, typer.Argument(metavar="DIR", help="Data folder of a stopped broker.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per line: the findings, then the totals.")
    ] = False,
    remote_storage_url: Annotated[
        str, typer.Option(help="The broker's setting of this name: its remote segments are checked too.")
    ] = "",
    remote_storage_endpoint: Annotated[str, typer.Option(help="The broker's setting of this name.")] = "",
    remote_storage_region: Annotated[str, typer.Option(help="The broker's setting of this name.")] = "",
) -> None:
    """Check a data folder of a stopped broker.

    Nothing is changed. It checks batches (CRC, offsets, sequences of each producer), indexes, leader epochs,
    checkpoints, and that the catalog and the folders agree. It compares snapshots with a replay of the log.
    """
    from tidelog.broker.data_folder.verification import verify_folder

    began = time.monotonic()
    report = _print_json if as_json else _print_line
    with broker_failures(data_dir), _progress() as progress:
        totals = verify_folder(data_dir, report, progress)
    if remote_storage_url:
        store = remote_storage_url, remote_storage_endpoint, remote_storage_region
        _verify_remote(data_dir, store, report, totals, as_json=as_json)
    if as_json:
        print(json.dumps({"totals": asdict(totals)}))
    else:
        _print_totals(totals, time.monotonic() - began)
    if totals.damage:
        raise typer.Exit(1)


def _verify_remote(
    data_dir: Path,
    store: tuple[str, str, str],
    report: Callable[[Finding], None],
    totals: FolderTotals,
    *,
    as_json: bool,
) -> None:
    """Check remote segments too, and add what was found to the totals."""
    from tidelog.broker.data_folder.remote_verification import verify_remote
    from tidelog.broker.storage.verification.findings import Findings, Severity
    from tidelog.remote_log.object_store import open_store

    findings = Findings(report)
    url, endpoint, region = store
    try:
        found = verify_remote(data_dir, open_store(url, endpoint=endpoint, region=region), findings)
    except ValueError as error:
        raise Failure(f"--remote-storage-url: {error}") from None
    except OSError as error:
        raise Failure(f"cannot read remote storage: {error}") from None
    totals.damage += findings.counts[Severity.DAMAGE]
    totals.warnings += findings.counts[Severity.WARNING]
    totals.unreported += findings.unreported
    if not as_json:
        print(f"{found.segments:,} remote segments, {found.log_bytes:,} bytes")


def _print_line(finding: Finding) -> None:
    print(f"{finding.severity.value:<8} {finding}", flush=True)


def _print_json(finding: Finding) -> None:
    print(json.dumps(asdict(finding)), flush=True)


def _print_totals(totals: FolderTotals, seconds: float) -> None:
    if totals.unreported:
        print(f"... and {totals.unreported:,} more, in files with too many findings to show")
    print(
        f"{totals.partitions:,} partitions, {totals.segments:,} segments, {totals.batches:,} batches,"
        f" {totals.records:,} records, {totals.log_bytes:,} bytes, {totals.snapshots:,} snapshots"
        f" ({seconds:.1f} s)"
    )
    warnings = f"{totals.warnings:,} warnings" if totals.warnings != 1 else "1 warning"
    damage = f"{totals.damage:,} places are damaged" if totals.damage != 1 else "1 place is damaged"
    print(f"{damage if totals.damage else 'no damage found'}, {warnings}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verify", total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, advance=done, total=total)

        yield advance
