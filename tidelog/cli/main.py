"""The console command `tidelog`.

Owns the entry point and the exit code: 0, 1 for a failure that one line on standard error explains, 2 for
wrong usage, 130 after Ctrl-C.

`serve` runs the broker's own command line at once: a broker has to be ready half a second after the command,
and building the other commands would take a quarter of that.

As process 1 of a container it obeys SIGTERM from its first lines on; by default the kernel ignores SIGTERM
there. A standard stream that is missing is replaced by /dev/null. Otherwise the next file that is opened, for
example a segment of a log, would get the stream's number and what is printed.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (those of the process by default) and return its exit code."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    if arguments is None:
        _open_missing_streams()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["serve"]:
        from tidelog.broker.command import main as serve

        try:
            return serve(given[1:], program="tidelog serve")
        except SystemExit as ended:  # How argparse ends after --help and wrong usage.
            return ended.code if isinstance(ended.code, int) else 1
    from tidelog.cli.app import run_command

    return run_command(given)


def _open_missing_streams() -> None:
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # The system gives the lowest number that is free, which is the stream's.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 (open to the end)


def _end(number: int, _: FrameType | None) -> None:
    """What SIGTERM does by default to every process but the first.

    The kernel spares that one: a stop while the broker starts would be forgotten, and the broker killed while
    it serves once the engine has waited long enough.
    """
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
