"""Users with a password in every SCRAM mechanism, put into a running broker."""

from tests.conformance.conftest import RunningBroker
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

SALT, ITERATIONS = b"salt", 4096


def add_users(running: RunningBroker, password: str, *users: str) -> None:
    made = {}
    for mechanism in ScramMechanism:
        salted = salted_password(mechanism, password, SALT, ITERATIONS)
        made[mechanism] = credential_of(mechanism, salted, SALT, ITERATIONS)
    for user in users:
        running.run(running.broker.services.users.change(user, made))
