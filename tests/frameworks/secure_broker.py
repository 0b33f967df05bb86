"""A broker with TLS, users, tokens and permissions, and what its clients in Java need: for tests that come
with Java.

The clients' properties are those of docs/security.md.
"""

import json
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from tests.certificates import Certificates
from tests.conformance.conftest import RunningBroker
from tests.conformance.scram_users import add_users
from tests.conformance.test_sasl_tokens import KEY, token
from tests.frameworks.java import java
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.configuration.security_settings import STANDARD_AUTHORIZER
from tidelog.wire.properties import parse_properties

USER, PASSWORD = "al,=ice", "p=w,d"
LISTENERS = {
    **dict.fromkeys(("TLS", "MUTUAL", "EXPIRED", "ELSEWHERE"), "SSL"),
    "SASL_SSL": "SASL_SSL",
    **dict.fromkeys(("SASL_PLAINTEXT", "AGAIN"), "SASL_PLAINTEXT"),
}
MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
MECHANISMS = (*MODULES, "OAUTHBEARER")
_BLOCK = re.compile(r"^```properties\n# Java: (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = dict(_BLOCK.findall((ROOT / "docs" / "security.md").read_text()))
"""What the page says that a client in Java needs for TLS, a certificate, a password, a token."""
CREDENTIALS = {
    "of the provider": 'clientId="svc" clientSecret="svc-secret"',
    "of a stranger": 'clientId="svc" clientSecret="wrong"',
}
"""Those of a client that gets its token from the identity provider."""


class Provider(BaseHTTPRequestHandler):
    """An identity provider that has one client."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        is_known = self.headers["Authorization"] == f"Basic {b64encode(b'svc:svc-secret').decode()}"
        self.send_response(200 if is_known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": token()} if is_known else {}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Shows nothing."""


class Secured(NamedTuple):
    """A broker, the folder with the files of its clients, and the address of an identity provider."""

    running: RunningBroker
    folder: Path
    provider: str

    def properties(
        self,
        listener: str,
        mechanism: str = "",
        user: str = USER,
        password: str = PASSWORD,
        token: str = "token",
    ) -> dict[str, str]:
        """A client's properties for a listener: those of the page, with the names of here."""
        kinds = ["TLS", *(["certificate"] if listener == "MUTUAL" else [])]
        if mechanism:
            kinds.append("password" if mechanism in MODULES else "token")
        text = "".join(BLOCKS[kind] for kind in kinds)
        for written, meant in {
            "authority.pem": str(self.folder / "authority.pem"),
            "alice.pem": str(self.folder / "alice-java.pem"),
            "file:///etc/kafka/token": self._token_url(token),
            "LoginModule required;": f"LoginModule required {CREDENTIALS.get(token, '')};",
            "SCRAM-SHA-512": mechanism,
            "scram.Scram": MODULES.get(mechanism, ""),
            '"alice"': f'"{user}"',
            '"alice-secret"': f'"{password}"',
        }.items():
            text = text.replace(written, meant)
        # The certificates are for this name as well as for the address.
        address = f"localhost:{self.running.broker.ports[listener]}"
        return {
            **parse_properties(text),
            "security.protocol": LISTENERS[listener],
            "bootstrap.servers": address,
        }

    def _token_url(self, name: str) -> str:
        return self.provider if name in CREDENTIALS else (self.folder / name).as_uri()

    @property
    def allowed_tokens(self) -> str:
        """The option by which a JVM gets tokens from these addresses (since Kafka 4.0)."""
        urls = ",".join(map(self._token_url, ("token", "expired", *CREDENTIALS)))
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"

    def tool(self, name: str, *arguments: str, lines: str = "", **properties: str) -> str:
        """What a tool of Kafka prints; by default it signs in over TLS."""
        given = self.properties(**{"listener": "SASL_SSL", "mechanism": "SCRAM-SHA-512", **properties})
        file = self.folder / "tool.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        server = ("--bootstrap-server", given["bootstrap.servers"], "--command-config", str(file))
        done = subprocess.run(
            java(name, *server, *arguments),
            input=lines,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        return done.stdout


@contextmanager
def secure_broker(folder: Path) -> Iterator[Secured]:
    """A broker with users, an issuer of tokens and an authorizer. Sessions of AGAIN last for two seconds."""
    certificates = Certificates(folder)
    overrides = {
        "listener.name.again.connections.max.reauth.ms": "2000",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener, host, days in ("expired", "localhost", -1), ("elsewhere", "elsewhere.example.org", 1):
        certificates.issue(host, expires=datetime.now(UTC) + timedelta(days=days))
        kept = Path(certificates.keystore).rename(folder / f"{listener}.pem")
        overrides[f"listener.name.{listener}.ssl.keystore.location"] = str(kept)
    certificates.issue()
    alice = certificates.client("alice")
    convert = ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", alice]
    key = subprocess.run(convert, check=True, capture_output=True, text=True).stdout
    chain = Path(alice).read_text().partition("-----BEGIN CERTIFICATE")
    (folder / "alice-java.pem").write_text(f"{key}{''.join(chain[1:])}")
    (folder / "keys").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (folder / "token").write_text(token())
    (folder / "expired").write_text(token(-3600))
    running = RunningBroker(
        folder / "data",
        listeners=tuple(f"{name}://127.0.0.1:0" for name in LISTENERS),
        listener_security_protocol_map=tuple(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        listener_overrides=overrides,
        ssl_keystore_location=certificates.keystore,
        ssl_truststore_location=certificates.authority,
        ssl_principal_mapping_rules="RULE:CN=(.*?),.*/$1/",
        sasl_enabled_mechanisms=MECHANISMS,
        sasl_oauthbearer_jwks_endpoint_url=(folder / "keys").as_uri(),
        sasl_oauthbearer_expected_audience=("kafka",),
        connection_failed_authentication_delay_ms=1,
        group_initial_rebalance_delay_ms=0,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users=f"User:{USER};User:svc;User:alice;User:ANONYMOUS",
    )
    add_users(running, PASSWORD, USER, "bob")
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as provider:
        Thread(target=provider.serve_forever, daemon=True).start()
        yield Secured(running, folder, f"http://127.0.0.1:{provider.server_port}/token")
        provider.shutdown()
    running.stop()
