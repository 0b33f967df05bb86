"""The user that the brokers of one cluster are to each other, where the settings name none.

Owns its name and its password, which follows from the secret of the cluster in the catalog: who can read the
catalog is a broker. Invariants: pure; only SCRAM on the inter-broker listener makes a client this user, so no
other way to authenticate gives its principal, whatever name it gives.

`broker_credential` takes some milliseconds: never call it on an event loop.
"""

from base64 import b64encode
from typing import Final

from tidelog.broker.security.unknown_users import STRONGEST
from tidelog.protocol import scram

BROKER_USER: Final = "tidelog-broker"
"""What the brokers call themselves in SCRAM. No other user may have this name."""
BROKER_TYPE: Final = "Broker"
BROKER_PRINCIPAL: Final = f"{BROKER_TYPE}:{BROKER_USER}"
"""A super user. No ACL and no setting can name it, because those are about the type User."""


def broker_password(secret: scram.ScramCredential) -> str:
    """`secret`: a credential whose keys only this cluster knows, and always the same."""
    return b64encode(_derived(secret, b"password")).decode()


def broker_credential(
    secret: scram.ScramCredential, mechanism: scram.ScramMechanism
) -> scram.ScramCredential:
    """What a broker checks the password of another one with."""
    salt = _derived(secret, b"salt")[: scram.SALT_BYTES]
    salted = scram.salted_password(mechanism, broker_password(secret), salt, scram.LEAST_ITERATIONS)
    return scram.credential_of(mechanism, salted, salt, scram.LEAST_ITERATIONS)


def _derived(secret: scram.ScramCredential, purpose: bytes) -> bytes:
    # The zero byte: no name of a user gives the same, from which `unknown_users` derives.
    return scram.keyed_hash(STRONGEST, secret.server_key, b"\0brokers: " + purpose)
