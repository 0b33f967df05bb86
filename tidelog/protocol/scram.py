"""The keys of SCRAM, for both sides of the wire: what a password becomes, and what is stored of it.

Owns the mechanisms with their numbers in the protocol, the derivation of keys from a password, and the check
of a client's proof. Invariants: the password cannot be computed from a credential; `repr` shows no key.

Passwords and names are used as UTF-8 bytes, without SASLprep, because Kafka and its clients do so.

Source: RFC 5802, sections 3 and 5; RFC 7677; KIP-84; Kafka's ScramFormatter.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

SALT_BYTES: Final = 32
"""Length of the salts that this project makes."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
"""As Kafka: more would let the creator of a user choose how long each check of its password takes."""


class ScramMechanism(IntEnum):
    """The mechanisms by their numbers in AlterUserScramCredentials (KIP-554)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SaslHandshake: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function as hashlib calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Length of a salted password and of each key."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores of one user's password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword. Takes some milliseconds: never call it on an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What is stored of a salted password."""
    client_key = keyed_hash(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, keyed_hash(mechanism, salted, b"Server Key"), iterations)


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether the credential was made of this password. Takes some milliseconds, as `salted_password`."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    made = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def is_proof(
    mechanism: ScramMechanism, credential: ScramCredential, proof: bytes, auth_message: bytes
) -> bool:
    """Whether a client's proof shows that it knows the password."""
    signature = keyed_hash(mechanism, credential.stored_key, auth_message)
    if len(proof) != len(signature):
        return False
    client_key = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), credential.stored_key)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """What a client sends to show that it knows the password: `is_proof` checks it."""
    client_key = keyed_hash(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    signature = keyed_hash(mechanism, stored_key, auth_message)
    return bytes(mine ^ theirs for mine, theirs in zip(client_key, signature, strict=True))


def keyed_hash(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """HMAC with the mechanism's hash function."""
    return hmac.digest(key, message, mechanism.hash_name)
