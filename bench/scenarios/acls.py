"""What ACLs cost a Produce: the processor time beside that of a broker without an authorizer.

Within one process, without sockets and disk (`acl_load`), so the ACLs' share is larger than in a broker.
"""

from bench.loads.acl_load import MANY_ACLS, ONE_ACL, OPEN
from bench.loads.process import run_program
from bench.results import REFERENCE, SUBJECT, Requirement, Results

PEERS = (REFERENCE,)
TITLE = "A Produce with ACLs beside one without an authorizer"
_REQUIRED = (Requirement(1.02, REFERENCE, at_least=False),)


def measure(results: Results, turns: int = 240) -> None:
    """Once. Raises LoadError."""
    times = run_program("acl_load", "--turns", turns)
    for kind in (ONE_ACL, MANY_ACLS):
        row = results.row("one-record Produce", kind, "µs/request", _REQUIRED)
        # The mean of the two of each turn, A B C C B A, so that a drift meets all alike.
        for who, name in ((SUBJECT, kind), (REFERENCE, OPEN)):
            for one, other in zip(times[name][::2], times[name][1::2], strict=True):
                row.add(who, (one + other) / 2)
