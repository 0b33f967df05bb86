"""What a container costs: `python -m tests.container.numbers` prints the table of docs/containers.md.

Throughput is measured in rounds. Each measures the container and a process of this machine in turn;
ratios are taken within a round.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.container.containers import Container, container
from tests.container.engine import docker
from tests.container.images import broker_image, pipeline_image
from tests.spark.brokers import running_broker
from tests.waiting import wait_for

_ROUNDS = 7
_RECORDS = 1_000_000
_MB = 1_000_000
# Of Docker.
_START_INTERVAL_SINCE = 25


def size_mb(image: str) -> float:
    return int(docker("image", "inspect", "--format", "{{.Size}}", image).stdout) / _MB


def memory_mb(pid: int | str) -> float:
    """What a process holds in memory, shared pages included."""
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in each]
    return int(line.split()[1]) * 1024 / _MB


def start_seconds(one: Container, options: tuple[str, ...]) -> tuple[float, float]:
    """From `docker run` to the first answer of a ready broker, and to the engine's `healthy`."""
    began = time.monotonic()
    one.start(*options, environment={})
    wait_for(lambda: one.answers("/readyz") == 200, "a broker that is ready", 60)
    ready = time.monotonic()
    one.wait_for_health("healthy")
    return ready - began, time.monotonic() - began


def starts(*options: str) -> tuple[float, float, float]:
    """Medians of seconds to ready, seconds to healthy and idle memory in MB."""
    measured = []
    for _ in range(_ROUNDS):
        with container(broker_image()) as one:
            docker("rm", "--force", one.name)
            measured.append((*start_seconds(one, options), memory_mb(one.inspect(".State.Pid"))))
    ready, healthy, held = map(statistics.median, zip(*measured, strict=True))
    return ready, healthy, held


def records_per_second(address: str) -> float:
    command = [sys.executable, "-m", "tidelog", "bench", "produce", "speed", "--json", "-b", address]
    done = subprocess.run([*command, "-n", str(_RECORDS)], check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["records_per_second"])


@contextmanager
def brokers(*options: str) -> Iterator[tuple[str, str]]:
    """The addresses of a container and of a process."""
    with (
        TemporaryDirectory() as folder,
        running_broker(Path(folder)) as process,
        container(broker_image(), *options) as one,
    ):
        yield one.bootstrap_servers, process.bootstrap_servers


def print_row(name: str, *values: object) -> None:
    print("| " + " | ".join([name, *map(str, values)]) + " |")


def main() -> None:
    ready, healthy, held = starts()
    print_row("size of the image, MB", round(size_mb(broker_image())))
    print_row("size with the pipeline, MB", round(size_mb(pipeline_image())))
    print_row("`docker run` to ready, s", round(ready, 2))
    print_row("`docker run` to healthy, s", round(healthy, 2))
    version = docker("version", "--format", "{{.Server.Version}}").stdout.strip()
    if int(version.split(".")[0]) >= _START_INTERVAL_SINCE:
        _, early, _ = starts("--health-start-interval", "200ms")
        print_row("the same with `--health-start-interval 200ms`, s", round(early, 2))
    print_row("idle memory, MB", round(held))
    with brokers() as addresses:
        rounds = [[records_per_second(each) for each in addresses] for _ in range(_ROUNDS)]
    inside, outside = (statistics.median(each) for each in zip(*rounds, strict=True))
    ratios = sorted(each[0] / each[1] for each in rounds)
    print_row("records/s of 100 B through a published port", f"{inside:,.0f}")
    print_row("records/s of a process outside", f"{outside:,.0f}")
    median = statistics.median(ratios)
    print_row("ratio (lowest to highest round)", f"{median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
