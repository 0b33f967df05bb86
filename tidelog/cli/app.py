"""The commands of `tidelog`, put together.

Owns the typer application, and what is printed for an exception. An expected failure (no broker, an unknown
topic, a bad setting, a file that cannot be read) prints one line.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.cli import (
    acl,
    bench,
    broker,
    cluster,
    config,
    consume,
    fault,
    group,
    log,
    pipeline,
    produce,
    producers,
    quota,
    reassign,
    storage,
    topic,
    transaction,
    user,
)
from tidelog.cli.command_config import add_command_config
from tidelog.cli.failures import Failure
from tidelog.version import VERSION

_COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

app = typer.Typer(
    name="tidelog",
    help="A Kafka-compatible broker that stores each record once and in order.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidelog {VERSION}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A Kafka-compatible broker that stores each record once and in order."""


@app.command(
    "serve",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _serve(context: typer.Context) -> None:
    """Run a broker. `tidelog serve --help` lists its options."""
    from tidelog.broker.command import main

    raise typer.Exit(main(context.args, program="tidelog serve"))


app.add_typer(topic.app, name="topic")
app.add_typer(reassign.app, name="reassign")
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(user.app, name="user")
app.add_typer(acl.app, name="acl")
app.add_typer(cluster.app, name="cluster")
app.add_typer(broker.app, name="broker")
app.add_typer(quota.app, name="quota")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("producers")(producers.producers)
app.add_typer(log.app, name="log")
app.add_typer(storage.app, name="storage")
app.add_typer(bench.app, name="bench")
app.add_typer(fault.app, name="fault")
app.add_typer(pipeline.app, name="pipeline")
app.command("config")(config.config)
add_command_config(app)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    command = typer.main.get_command(app)
    if _COMPLETION_VARIABLE in os.environ:
        # A shell asks what can follow; `main` answers and ends the process.
        command.main([], prog_name="tidelog", complete_var=_COMPLETION_VARIABLE)
    # `main` leaves Ctrl-C to the system while modules are imported. A command ends its work in order.
    was_left = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    try:
        if was_left:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # Typer's own call makes a failure of a reader of our output that ends (`head`).
        with command.make_context("tidelog", list(arguments)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as misuse:
        # Typer's types do not say so, but all that it raises for a wrong command line has `show`.
        misuse.show()  # type: ignore[attr-defined]
        return misuse.exit_code
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output (`head`) has ended.
        _discard_output()
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        _discard_output()
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if was_left:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return 0


def _discard_output() -> None:
    """Otherwise Python reports an error at exit, when it flushes the rest of the output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
