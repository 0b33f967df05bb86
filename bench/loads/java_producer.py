"""Kafka's own producer in Java at full speed, with its defaults: idempotent, 16 KB batches, 5 ms of linger.

Kafka's performance tool runs it, and prints the rate and the time of records from `send` to the answer.
`cpu_seconds` are those of the whole JVM, its start included.
"""

import re
import resource
import subprocess

from bench.targets.kafka import java
from bench.wire import HOST, WireError

_TOOLS = "org.apache.kafka:kafka-tools:4.3.1"
_TIMEOUT_S = 240
_LINE = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec.* ([\d.]+) ms 99th", re.MULTILINE)


def run(port: int, topic: str, value_bytes: int, records: int) -> dict[str, float]:
    """Send `records`. Raises TargetError without the tool, WireError when not all were sent."""
    command = [
        *(*java(_TOOLS, "512M"), "org.apache.kafka.tools.ProducerPerformance"),
        *("--topic", topic, "--num-records", str(records), "--record-size", str(value_bytes)),
        *("--throughput", "-1", "--bootstrap-server", f"{HOST}:{port}", "--command-property", "acks=all"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    found = [match for match in _LINE.finditer(done.stdout) if int(match[1]) == records]
    if done.returncode or not found:
        raise WireError(f"ProducerPerformance: {(done.stdout + done.stderr)[-1000:]}")
    _, rate, p99_ms = found[-1].groups()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "records": records,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "acknowledged": records,
        "seconds": records / float(rate),
        "p99_ms": float(p99_ms),
    }
