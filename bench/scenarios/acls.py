"""What ACLs cost a Produce: the processor time beside that of a broker without an authorizer.

Within one process, without sockets and disk (`acl_load`), so the ACLs' share is larger than in a broker.
"""

from bench.comparison import Run
from bench.loads.acl_load import MANY_ACLS, ONE_ACL, OPEN
from bench.loads.process import run_program
from bench.results import REFERENCE, SUBJECT, Requirement, Results

_REQUIRED = (Requirement(1.02, REFERENCE, at_least=False),)


def measure(run: Run) -> Results:
    """Once. Raises LoadError."""
    results = Results((REFERENCE,), "A Produce with ACLs beside one without an authorizer")
    times = run_program("acl_load", folder=str(run.folder))
    for kind in (ONE_ACL, MANY_ACLS):
        row = results.row("one-record Produce", kind, "µs/request", _REQUIRED)
        for who, name in ((SUBJECT, kind), (REFERENCE, OPEN)):
            for value in times[name]:
                row.add(who, value)
    return results
