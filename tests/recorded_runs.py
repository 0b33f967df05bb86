"""Writes which suites of other projects' clients were run, with counts and versions, into `docs/runs.json`.

A plugin of pytest: `-p tests.recorded_runs`. Owns the list of these suites. `docs/compatibility.md` shows the
file. A suite is a file of tests: what its last run says replaces what an earlier one said, all else stays.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version

import pytest

from tests.tidy.house import ROOT

FILE = ROOT / "docs" / "runs.json"
_FRAMEWORKS = ROOT / "tests" / "frameworks"


def _librdkafka() -> str:
    import confluent_kafka

    return f"confluent-kafka {version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})"


def _package(*names: str) -> Callable[[], str]:
    return lambda: ", ".join(f"{name} {version(name)}" for name in names)


def _of_jars() -> str:
    [release] = re.findall(r"/kafka_2\.13-([\d.]+)\.jar", (_FRAMEWORKS / "jars.lock").read_text())
    return f"Kafka {release}"


def _of_lock(*names: str) -> Callable[[], str]:
    def read() -> str:
        locked = dict(
            re.findall(r"^([\w-]+)==([\w.]+)", (_FRAMEWORKS / "requirements.lock").read_text(), re.M)
        )
        return ", ".join(f"{name} {locked[name]}" for name in names)

    return read


def _franz_go() -> str:
    from tests.frameworks.over_go import MODULE

    return f"franz-go {MODULE.rpartition('@v')[2]}"


def _librdkafka_source() -> str:
    from tests.frameworks.share_over_librdkafka import VERSION

    return f"librdkafka {VERSION}: its own tests of its share consumer"


SUITES: Mapping[str, Callable[[], str]] = {
    "tests/conformance/test_confluent_kafka.py": _librdkafka,
    "tests/conformance/test_aiokafka.py": _package("aiokafka"),
    "tests/conformance/test_kafka_python.py": _package("kafka-python"),
    "tests/conformance/test_foreign_clients.py": lambda: (
        f"{_librdkafka()}, {_package('aiokafka', 'kafka-python')()}"
    ),
    "tests/conformance/test_kio_messages.py": _package("kio"),
    "tests/conformance/test_client_telemetry.py": lambda: f"{_librdkafka()}: its metrics",
    "tests/frameworks/test_frameworks.py": _of_lock(
        "faststream", "faust-streaming", "quixstreams", "taskiq-aio-kafka"
    ),
    "tests/frameworks/over_maven.py": lambda: f"{_of_jars()}: Streams, Connect, its command line tools",
    "tests/frameworks/security_over_maven.py": lambda: f"{_of_jars()}: its clients with TLS and SASL",
    "tests/frameworks/share_over_maven.py": lambda: (
        f"{_of_jars()}: its share consumer and tools of share groups"
    ),
    "tests/frameworks/share_over_librdkafka.py": _librdkafka_source,
    "tests/frameworks/telemetry_over_maven.py": lambda: f"{_of_jars()}: its clients' metrics",
    "tests/frameworks/java_failovers.py": lambda: f"{_of_jars()}: its clients while brokers fail",
    "tests/frameworks/over_go.py": _franz_go,
}
"""File of tests -> what it runs, with versions."""

_outcomes: dict[str, Counter[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.failed:
        suite = report.nodeid.partition("::")[0]
        _outcomes.setdefault(suite, Counter())["failed" if report.failed else "passed"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    runs = json.loads(FILE.read_text()) if FILE.exists() else {}
    for suite in SUITES.keys() & _outcomes.keys():
        counts = _outcomes[suite]
        runs[suite] = {"clients": SUITES[suite](), "passed": counts["passed"], "failed": counts["failed"]}
    FILE.write_text(json.dumps(dict(sorted(runs.items())), indent=1) + "\n")
