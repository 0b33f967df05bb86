"""What TLS and SASL cost: librdkafka's producer on brokers that differ only in their listener's protocol."""

import subprocess
import sys

import trustme

from bench.comparison import Case, Comparison, speed
from bench.scenarios.brokers import SIZES
from bench.targets.process import TargetError, free_port
from bench.targets.tidelog import Tidelog
from bench.wire import HOST

_MECHANISM = "SCRAM-SHA-512"
_USER, _PASSWORD = "bench", "bench-password"


class _Ssl(Tidelog):
    """Listens by a security protocol beside PLAINTEXT, whose port `port` is."""

    protocol = "SSL"
    name = f"{Tidelog.name} {protocol}"

    def prepare(self) -> None:
        """Make the certificates and the user. Raises TargetError."""
        authority = self.folder.with_name(f"{self.folder.name}-authority.pem")
        keystore = self.folder.with_name(f"{self.folder.name}-keystore.pem")
        made = trustme.CA()
        made.cert_pem.write_to_path(str(authority))
        made.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(keystore))
        command = [sys.executable, "-m", "tidelog.cli", "storage", "add-user", str(self.folder), _USER]
        done = subprocess.run(command, input=_PASSWORD, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"tidelog storage add-user: {done.stderr.strip()}")
        address = f"{HOST}:{free_port()}"
        self._settings = (
            f"listeners=PLAINTEXT://{HOST}:{self.port},{self.protocol}://{address}",
            *(f"ssl.keystore.location={keystore}", "ssl.keystore.type=PEM"),
        )
        properties = {
            "bootstrap.servers": address,
            "security.protocol": self.protocol,
            "ssl.ca.location": str(authority),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }
        self.load_options = {"properties": properties}


class _SaslPlaintext(_Ssl):
    protocol = "SASL_PLAINTEXT"
    name = f"{Tidelog.name} {protocol}"


class _SaslSsl(_Ssl):
    protocol = "SASL_SSL"
    name = f"{Tidelog.name} {protocol}"


SECURITY = Comparison(
    "TLS and SASL beside plaintext, librdkafka's idempotent producer",
    (Tidelog, _Ssl, _SaslPlaintext, _SaslSsl),
    tuple(
        Case(
            f"librdkafka, {title}",
            "librdkafka_producer",
            {"value_bytes": size},
            speed(p99_name="p99 of a request"),
        )
        for title, size in SIZES
    ),
)
