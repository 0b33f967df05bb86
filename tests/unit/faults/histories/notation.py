"""Elle's short notation: `ax1` appends 1 to x, `wx1` writes 1, `ry12` reads the list [1 2], `rx` nothing."""

import re

from faults.histories.history import Outcome, Read, Transaction, Write


def lists(*texts: str, failed: tuple[int, ...] = (), sessions: str = "") -> list[Transaction]:
    """Transactions T1, T2, …; those with the numbers `failed` were aborted. `sessions`: a letter for each."""
    return [
        Transaction(
            f"T{number}",
            tuple(
                Write(key, int(value)) if what == "a" else Read(key, tuple(map(int, value)))
                for what, key, value in re.findall(r"([ar])([x-z])(\d*)", text)
            ),
            Outcome.ABORTED if number in failed else Outcome.COMMITTED,
            sessions[number - 1] if sessions else None,
        )
        for number, text in enumerate(texts, 1)
    ]


def registers(*texts: str, failed: tuple[int, ...] = ()) -> list[Transaction]:
    """`rx_` reads the initial state."""
    return [
        Transaction(
            f"T{number}",
            tuple(
                (Write if what == "w" else Read)(key, None if value == "_" else int(value))
                for what, key, value in re.findall(r"([wr])([x-z])(\d|_)", text)
            ),
            Outcome.ABORTED if number in failed else Outcome.COMMITTED,
        )
        for number, text in enumerate(texts, 1)
    ]
