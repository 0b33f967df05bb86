"""Clients by others and ours over TLS: they work unchanged, and are told what is wrong with a certificate."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tests.certificates import Certificates
from tests.conformance.conftest import RunningBroker
from tests.conformance.round_trips import CLIENTS, Way, assert_makes_a_round_trip
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.client import Admin, TlsError

PROTOCOLS = "ONE_WAY:SSL,MUTUAL:SSL,EXPIRED:SSL,ELSEWHERE:SSL"


class Served(NamedTuple):
    broker: RunningBroker
    certificates: Certificates
    client: str

    def address(self, listener: str) -> str:
        # The certificates are for this name as well as for the address.
        return f"localhost:{self.broker.broker.ports[listener]}"

    def way(self, listener: str, certificate: str = "") -> Way:
        return Way(self.address(listener), authority=self.certificates.authority, certificate=certificate)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with listeners for TLS, for certificates of both sides, and two that clients must refuse."""
    folder = tmp_path_factory.mktemp("certificates")
    certificates = Certificates(folder)
    own = Path(certificates.keystore).read_bytes()
    overrides: dict[str, object] = {"listener.name.mutual.ssl.client.auth": "required"}
    for listener, given in {
        "expired": {"expires": datetime.now(UTC) - timedelta(days=1)},
        "elsewhere": {"host": "elsewhere.example.org"},
    }.items():
        certificates.issue(*([given["host"]] if "host" in given else []), expires=given.get("expires"))  # type: ignore[list-item, arg-type]
        path = folder / f"{listener}.pem"
        path.write_bytes(Path(certificates.keystore).read_bytes())
        overrides[f"listener.name.{listener}.ssl.keystore.location"] = str(path)
    Path(certificates.keystore).write_bytes(own)
    running = RunningBroker(
        tmp_path_factory.mktemp("broker"),
        listeners=tuple(f"{name}://127.0.0.1:0" for name in ("ONE_WAY", "MUTUAL", "EXPIRED", "ELSEWHERE")),
        listener_security_protocol_map=tuple(PROTOCOLS.split(",")),
        ssl_keystore_location=certificates.keystore,
        ssl_truststore_location=certificates.authority,
        ssl_principal_mapping_rules="RULE:CN=(.*?),.*/$1/",
        listener_overrides=overrides,
        group_initial_rebalance_delay_ms=0,
    )
    yield Served(running, certificates, certificates.client("alice"))
    running.stop()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("listener", ["ONE_WAY", "MUTUAL"])
async def test_every_client_creates_topics_writes_and_reads_over_tls(
    served: Served, listener: str, client: str
) -> None:
    way = served.way(listener, served.client if listener == "MUTUAL" else "")
    await assert_makes_a_round_trip(client, way, f"{client}-{listener}")


def refusal_of_librdkafka(served: Served, listener: str) -> str:
    errors: list[KafkaError] = []
    admin = AdminClient(served.way(listener).librdkafka(error_cb=errors.append))
    wait_for(lambda: admin.poll(0.01) or errors, "an error", DEADLINE_SECONDS)
    return errors[0].str()


def refusal_of_ours(served: Served, listener: str) -> str:
    async def refused() -> None:
        async with Admin(**served.way(listener).ours()) as admin:
            await admin.list_topics()

    with pytest.raises(TlsError) as caught:
        asyncio.run(refused())
    return str(caught.value)


_REFUSALS = {
    refusal_of_librdkafka: ("certificate verify failed", "certificate verify failed", "certificate required"),
    refusal_of_ours: ("has expired", "is for another host", "the broker refuses the client's certificate"),
}


@pytest.mark.parametrize("refusal", _REFUSALS, ids=lambda function: function.__name__)
def test_a_certificate_that_is_not_accepted_is_the_error_that_the_client_documents(
    served: Served, refusal: Callable[[Served, str], str]
) -> None:
    for listener, expected in zip(("EXPIRED", "ELSEWHERE", "MUTUAL"), _REFUSALS[refusal], strict=True):
        assert expected in refusal(served, listener)
