"""One-record requests at 1×1, 1×5 and 16×5 connections × in flight: requests a second, p50 and p99.

Tidelog is measured twice: with acks=all, which waits for the disk, and with acks=1, which answers from the
page cache and so promises what an in-memory broker does. Its disk is measured in the same round, because the
in-flight requests divided by the time of an fdatasync is a ceiling that no durable broker passes. In the rows
of acks=1 the other targets' numbers are repeated: they wait for no disk in either case.
"""

from collections.abc import Sequence

from bench.loads.process import Outcome, run_load
from bench.results import SUBJECT, Requirement, Results
from bench.targets.process import Target

CASES = ((1, 1), (1, 5), (16, 5))
_RATE = (Requirement(2.0, "tansu"),)
_LOWER_P99 = (Requirement(1.0, "tansu", at_least=False),)


def title(connections: int, in_flight: int) -> str:
    """The scenario's name; that of acks=1 is made from it."""
    return f"one-record requests {connections}×{in_flight}"


def measure(results: Results, targets: Sequence[Target], seconds: float) -> None:
    """One round: each case against each target. Raises LoadError, TargetError."""
    for connections, in_flight in CASES:
        options = ("--connections", connections, "--in-flight", in_flight, "--seconds", seconds)
        name = title(connections, in_flight)
        relaxed_name = f"{name}, acks=1"
        p99_rule = _LOWER_P99 if (connections, in_flight) == (1, 5) else ()
        for target in targets:
            outcome = run_load(target, "request_load", *options)
            _note(results, name, target.name, outcome, _RATE, p99_rule)
            if target.name == SUBJECT:
                relaxed = run_load(target, "request_load", *options, "--acks", 1)
                _note(results, relaxed_name, target.name, relaxed)
            else:
                _note(results, relaxed_name, target.name, outcome)


def _note(
    results: Results,
    name: str,
    target: str,
    outcome: Outcome,
    rate_rule: tuple[Requirement, ...] = (),
    p99_rule: tuple[Requirement, ...] = (),
) -> None:
    numbers = outcome.numbers
    rate = numbers["requests"] / numbers["seconds"]
    results.row(name, "rate", "requests/s", rate_rule).add(target, rate)
    results.row(name, "p50", "ms").add(target, numbers["p50_ms"])
    results.row(name, "p99", "ms", p99_rule).add(target, numbers["p99_ms"])
    results.row(name, "server CPU", "µs/request").add(
        target, outcome.server_cpu_s * 1e6 / numbers["requests_with_warm_up"]
    )
