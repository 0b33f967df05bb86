"""What TLS, SASL and ACLs cost: the same loads on brokers that differ only in these."""

import asyncio
import subprocess
import sys

import trustme
from structlog.testing import capture_logs

from bench.comparison import Case, Comparison, speed
from bench.scenarios.brokers import SIZES
from bench.targets.process import TargetError, free_port
from bench.targets.tidelog import Tidelog
from bench.wire import HOST, TOPIC
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.services import open_services
from tidelog.protocol.acls import Acl, Operation, PatternType, Permission, ResourceType

_MECHANISM = "SCRAM-SHA-512"
_USER, _PASSWORD = "bench", "bench-password"
_ACLS = 10_000


class _Ssl(Tidelog):
    """Listens by the security protocol of its name too; `port` is that of PLAINTEXT."""

    name = "SSL"

    def addresses(self) -> tuple[str, ...]:
        return (f"listeners=PLAINTEXT://{HOST}:{self.port},{self.name}://{self._secure_address}",)

    def prepare(self) -> None:
        """Make the certificates and the user. Raises TargetError."""
        self._secure_address = f"{HOST}:{free_port()}"
        authority = self.folder.with_name(f"{self.folder.name}-authority.pem")
        keystore = self.folder.with_name(f"{self.folder.name}-keystore.pem")
        made = trustme.CA()
        made.cert_pem.write_to_path(str(authority))
        made.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(keystore))
        command = [sys.executable, "-m", "tidelog.cli", "storage", "add-user", str(self.folder), _USER]
        done = subprocess.run(command, input=_PASSWORD, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"tidelog storage add-user: {done.stderr.strip()}")
        self.settings = (f"ssl.keystore.location={keystore}", "ssl.keystore.type=PEM")
        properties = {
            "bootstrap.servers": self._secure_address,
            "security.protocol": self.name,
            "ssl.ca.location": str(authority),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }
        self.load_options = {"properties": properties}


class _SaslPlaintext(_Ssl):
    name = "SASL_PLAINTEXT"


class _SaslSsl(_Ssl):
    name = "SASL_SSL"


class _WithAcls(Tidelog):
    """One of its ACLs lets the load in; the others are prefixes and names of a thousand other users."""

    name = f"{_ACLS:,} ACLs"
    settings = (f"authorizer.class.name={STANDARD_AUTHORIZER}",)

    def prepare(self) -> None:
        with capture_logs():  # The events of this process are not the server's.
            asyncio.run(self._create_acls())

    async def _create_acls(self) -> None:
        services = await open_services(BrokerConfig(data_dir=self.folder), Metrics(), lambda: 1)
        patterns = (PatternType.PREFIXED, PatternType.LITERAL)
        others = [_acl(f"other-{n:05d}", patterns[n % 2], f"User:u{n % 1000}") for n in range(_ACLS - 1)]
        await services.acls.create([*others, _acl(TOPIC, PatternType.PREFIXED, "User:ANONYMOUS")])
        await services.close(clean=True)


def _acl(name: str, pattern: PatternType, principal: str) -> Acl:
    return Acl(ResourceType.TOPIC, pattern, name, principal, "*", Operation.ALL, Permission.ALLOW)


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
ACLS = Comparison(
    "Many ACLs beside no authorizer",
    (Tidelog, _WithAcls),
    (Case("one-record requests 1×5", "raw_load", {"in_flight": 5}, speed("request")),),
)
