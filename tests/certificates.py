"""Certificates for tests: an authority, a broker's and clients', as files and as contexts of ssl."""

import ssl
import subprocess
from datetime import datetime
from pathlib import Path

import trustme


class Certificates:
    """One authority and what it issued, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.authority = str(folder / "authority.pem")
        self._authority.cert_pem.write_to_path(self.authority)
        self.keystore = str(folder / "keystore.pem")
        self.issue()

    def issue(self, *hosts: str, expires: datetime | None = None) -> trustme.LeafCert:
        """A certificate of the broker for these hosts, else for this machine; it is `keystore` then."""
        issued = self._authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")), not_after=expires)
        issued.private_key_and_cert_chain_pem.write_to_path(self.keystore)
        return issued

    def client(self, name: str) -> str:
        """The path of a file with key and certificate of a client called `name`."""
        path = str(self._folder / f"{name}.pem")
        self._authority.issue_cert(
            f"{name}@example.org", common_name=name
        ).private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def issue_with_sha1(self) -> str:
        """The path of a file with a key and a certificate that is signed with SHA-1."""
        key, issued, signer = (self._folder / name for name in ("weak.key", "weak.pem", "authority.key"))
        self._authority.private_key_pem.write_to_path(str(signer))
        made_of = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=weak"
        files = f"-CA {self.authority} -CAkey {signer} -keyout {key} -out {issued}"
        command = f"openssl req -x509 -sha1 {made_of} {files}"
        subprocess.run(command.split(), check=True, capture_output=True)
        issued.write_bytes(key.read_bytes() + issued.read_bytes())
        return str(issued)

    def context(self, client: str = "") -> ssl.SSLContext:
        """That of a client which trusts the authority; `client` is its file."""
        context = ssl.create_default_context(cafile=self.authority)
        if client:
            context.load_cert_chain(client)
        return context
