"""What TLS and SASL cost: librdkafka's producer over four listeners of one broker, one after the other.

The reference is the listener without security, in the same round on the same disk.
"""

import subprocess
import sys
from pathlib import Path

import trustme

from bench.loads.process import LoadError, run_load
from bench.results import REFERENCE, SUBJECT, Results
from bench.targets.process import free_port
from bench.targets.tidelog import Tidelog
from bench.wire import HOST

PEERS = (REFERENCE,)
TITLE = "TLS and SASL beside plaintext, librdkafka's idempotent producer"
_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM = "SCRAM-SHA-512"
_USER, _PASSWORD = "bench", "bench-password"
_SIZES = (("100-byte records", 100), ("1 KB records", 1000))


class _SecureTidelog(Tidelog):
    """Listens by every security protocol; `port` is that of PLAINTEXT."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports = {protocol: free_port() for protocol in _PROTOCOLS}
        self.authority = folder.with_name(f"{folder.name}-authority.pem")
        self._keystore = folder.with_name(f"{folder.name}-keystore.pem")

    def make_secrets(self) -> None:
        """Make the certificates and the user before the broker starts. Raises LoadError."""
        self.folder.mkdir(parents=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(self._keystore))
        command = [sys.executable, "-m", "tidelog.cli", "storage", "add-user", str(self.folder), _USER]
        made = subprocess.run(command, input=_PASSWORD, capture_output=True, text=True, check=False)
        if made.returncode:
            raise LoadError(f"tidelog storage add-user: {made.stderr.strip()}")

    def command(self) -> list[str]:
        ports = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        return [
            *(sys.executable, "-m", "tidelog.broker", "--http-port", "-1", "--data-dir", str(self.folder)),
            *("--set", f"listeners={listeners}", "--set", f"ssl.keystore.location={self._keystore}"),
            *("--set", "ssl.keystore.type=PEM"),
        ]


def measure(results: Results, folder: Path, rounds: int, seconds: float) -> None:
    """Each listener in each round. Raises LoadError, TargetError."""
    target = _SecureTidelog(folder)
    target.make_secrets()
    with target:
        for _ in range(rounds):
            for title, value_bytes in _SIZES:
                plain = _megabytes_and_cpu(target, value_bytes, seconds)
                for protocol in _PROTOCOLS:
                    secure = _megabytes_and_cpu(
                        target, value_bytes, seconds, "--security", _properties(target, protocol)
                    )
                    for at, (value, unit) in enumerate((("throughput", "MB/s"), ("server CPU", "ms/MB"))):
                        row = results.row(f"{protocol}, {title}", value, unit)
                        row.add(SUBJECT, secure[at])
                        row.add(REFERENCE, plain[at])


def _megabytes_and_cpu(
    target: _SecureTidelog, value_bytes: int, seconds: float, *options: object
) -> tuple[float, float]:
    """MB per second, and milliseconds of the broker's processor time per MB."""
    outcome = run_load(target, "confluent_load", "--value-bytes", value_bytes, "--seconds", seconds, *options)
    megabytes = outcome.numbers["records"] * value_bytes / 1e6
    return megabytes / outcome.numbers["seconds"], outcome.server_cpu_s * 1000 / megabytes


def _properties(target: _SecureTidelog, protocol: str) -> Path:
    """A file of librdkafka's properties for one listener."""
    properties = {
        "bootstrap.servers": f"{HOST}:{target.ports[protocol]}",
        "security.protocol": protocol,
        "ssl.ca.location": str(target.authority),
        "sasl.mechanism": _MECHANISM,
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
    }
    path = target.folder.with_name(f"{protocol}.properties")
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path
