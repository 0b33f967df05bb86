"""`python -m bench.cores`: what more cores than a bench has would give, as the table of docs/processes.md.

Owns the model. Its figures are measured on a machine with two cores; `Machine` says what is assumed of the
one with more. Pure but for `main`. Each process of a broker has a core of its own, and the clients are on
other machines. Every process gets an equal part of the load, in requests of one partition each, five of them
in flight per connection.

What the model leaves out: cores that share a cache or the bandwidth of the memory, a load that meets few
partitions, and connections that go to another process than the one that leads.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

CORES: Final = (1, 2, 4, 8, 16, 64)


class Load(NamedTuple):
    """What one kind of request costs a broker. `python -m bench --only processes` measures `broker_us`."""

    name: str
    broker_us: float
    """Processor time of one process for a request that it gets from one connection."""
    request_bytes: int
    """On the network; the same bytes are written to the disk."""


LOADS: Final = (Load("1 record", 71.0, 250), Load("200 records", 225.0, 22_000))


class Machine(NamedTuple):
    """What is assumed of a machine beside its cores, and what one process costs there."""

    syncs_per_s: float = 100_000.0
    """fdatasync of small writes, to many files at once: a server's disk, whose cache survives a power cut."""
    requests_per_sync: float = 2.5
    """Half of those in flight, because the others arrive while the disk works."""
    disk_bytes_per_s: float = 2e9
    network_bytes_per_s: float = 25e9 / 8
    lone_process_mb: float = 34.0
    first_and_store_mb: float = 52.0
    """Of several processes, the first one and the store, with the pages that all share."""
    process_mb: float = 19.5
    """Of each that serves, its own pages."""
    store_us: float = 695.0
    """Processor time of the store for a commit, such as a new topic."""
    store_us_per_process: float = 93.0
    """More of it for each process that gets the commit."""
    front_us_per_series: float = 1.9
    """Processor time to put one series into the /metrics of all processes."""


class Row(NamedTuple):
    """The rates and the memory that the model gives for a number of cores."""

    rates: tuple[float, ...]
    """Requests/s of each load."""
    limits: tuple[str, ...]
    """What stops each from being more."""
    commits_per_s: float
    memory_mb: float


def limits_of(load: Load, cores: int, machine: Machine) -> Mapping[str, float]:
    """Requests/s that each part of the machine allows."""
    return {
        "processor": cores * 1e6 / load.broker_us,
        "syncs": machine.syncs_per_s * machine.requests_per_sync,
        "disk": machine.disk_bytes_per_s / load.request_bytes,
        "network": machine.network_bytes_per_s / load.request_bytes,
    }


def row_of(cores: int, machine: Machine) -> Row:
    """A broker with a process for each core; with one, it has no store process."""
    limits = [limits_of(load, cores, machine) for load in LOADS]
    firsts = [min(each, key=lambda part: each[part]) for each in limits]
    watchers = cores if cores > 1 else 0
    return Row(
        tuple(each[first] for each, first in zip(limits, firsts, strict=True)),
        tuple(firsts),
        1e6 / (machine.store_us + machine.store_us_per_process * watchers),
        machine.lone_process_mb if cores == 1 else machine.first_and_store_mb + cores * machine.process_mb,
    )


def table(machine: Machine) -> str:
    """As Markdown, a row for each of `CORES`."""
    loads = " | ".join(f"requests/s of {load.name} | its limit" for load in LOADS)
    lines = [
        f"| cores | {loads} | changes of the catalog/s | memory, MB |",
        "|---:|" + "---:|---|" * len(LOADS) + "---:|---:|",
    ]
    for cores in CORES:
        row = row_of(cores, machine)
        cells = (f"{rate:,.0f} | {first}" for rate, first in zip(row.rates, row.limits, strict=True))
        lines.append(f"| {cores} | {' | '.join(cells)} | {row.commits_per_s:,.0f} | {row.memory_mb:,.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    print(table(Machine()), end="")


if __name__ == "__main__":
    main()
