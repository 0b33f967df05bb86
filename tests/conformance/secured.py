"""A broker with security whose HTTP port is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

PASSWORD = "open sesame: ü"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


async def add_user(broker: Broker, user: str, password: str = PASSWORD) -> None:
    """Or give the user another password."""
    mechanism, salt = ScramMechanism.SCRAM_SHA_256, b"salt"
    salted = salted_password(mechanism, password, salt, 4096)
    await broker.services.users.change(user, {mechanism: credential_of(mechanism, salted, salt, 4096)})


@asynccontextmanager
async def secured(tmp_path: Path, **settings: object) -> AsyncIterator[Broker]:
    """A broker with SASL and the user alice; faults are enabled."""
    config = BrokerConfig.load(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "http.port": 0,
            "data.dir": tmp_path / "data",
            "faults.enable": True,
            "connection.failed.authentication.delay.ms": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    async with await Broker.start(config) as broker:
        await broker.services.topics.create("t")
        for user in ("alice", "bob"):
            await add_user(broker, user)
        yield broker
