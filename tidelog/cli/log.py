"""`tidelog log dump`: shows what a file of a partition's folder contains, without a broker.

Changes nothing, so it may read the folder of a running broker. Exits with 1 when a batch is damaged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli import verify
from tidelog.cli.failures import Failure, reading

app = typer.Typer(no_args_is_help=True, help="Show and check the files of a log.")


@app.callback()
def _log() -> None:
    """Show and check the files of a log."""


@app.command()
def dump(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File in the folder of a partition.")],
    records: Annotated[bool, typer.Option("--records", help="Show also the records of each batch.")] = False,
) -> None:
    """Show the content of a file of a log.

    These are the batches of a .log, or the entries of an .index, .timeindex, .txnindex or .snapshot.
    """
    from tidelog.cli import dump_indexes, dump_log

    dumpers: dict[str, Callable[[Path], bool]] = {
        ".log": lambda path: dump_log.dump(path, with_records=records),
        ".index": dump_indexes.dump_offset_index,
        ".timeindex": dump_indexes.dump_time_index,
        ".txnindex": dump_indexes.dump_transaction_index,
        ".snapshot": dump_indexes.dump_snapshot,
    }
    dumper = dumpers.get(file.suffix)
    if dumper is None:
        raise Failure(f"expected a file that ends in {', '.join(dumpers)}, got {file}")
    with reading(file):
        whole = dumper(file)
    if not whole:
        raise typer.Exit(1)


app.command("verify")(verify.verify)
