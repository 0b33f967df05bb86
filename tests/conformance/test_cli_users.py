"""`tidelog user` and `tidelog storage add-user` decide who may sign in; by default nobody may."""

import io
from pathlib import Path

import pytest

from tests.conformance.commands import typist
from tests.conformance.conftest import RunningBroker
from tests.conformance.raw import connected
from tidelog.protocol.schema import ApiKey

SASL = {
    "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
    "sasl_enabled_mechanisms": ("PLAIN", "SCRAM-SHA-512"),
}
PROPERTIES = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="root" password="secret";
"""


def signs_in(broker: RunningBroker, user: str, password: str) -> bool:
    return broker.run(_signs_in(broker, user, password))


async def _signs_in(broker: RunningBroker, user: str, password: str) -> bool:
    async with connected(broker.broker.port) as peer:
        await peer.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{password}".encode()
        answer = await peer.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        return bool(answer.error_code == 0)


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.one_broker("the catalog is in the data folder")
def test_a_folder_that_has_a_user_and_no_broker_yet_keeps_its_node_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tidelog, folder = typist(capfd), str(tmp_path / "data")
    for user, more in (("root", ("--node-id", "0")), ("alice", ())):
        typed(monkeypatch, "secret\n")
        assert tidelog("storage", "add-user", folder, user, *more) == (0, f"made {user}\n", "")
    broker = RunningBroker(tmp_path / "data", node_id=0, **SASL)
    try:
        assert signs_in(broker, "alice", "secret")
    finally:
        broker.stop()


def test_a_user_whose_name_is_not_unicode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "secret\n")
    code, _, error = typist(capfd)("storage", "add-user", str(tmp_path), "r\udcffot")
    assert (code, "must be Unicode, got 'r\\udcffot'" in error) == (1, True)


@pytest.mark.one_broker("the catalog is in the data folder")
def test_the_first_user_is_made_on_a_stopped_broker_and_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tidelog, folder = typist(capfd), tmp_path / "new" / "data"
    typed(monkeypatch, "secret\n")
    assert tidelog("storage", "add-user", str(folder), "root") == (0, "made root\n", "")
    broker = RunningBroker(folder, **SASL)
    try:
        assert signs_in(broker, "root", "secret")
        for user, password in (("root", "root"), ("admin", "admin"), ("", "")):
            assert not signs_in(broker, user, password)
        file = tmp_path / "root.properties"
        file.write_text(PROPERTIES)
        as_root = ("--command-config", str(file), "--bootstrap-servers", broker.address)
        typed(monkeypatch, "of alice\n")
        assert tidelog("user", "add", "alice", *as_root)[0] == 0
        assert signs_in(broker, "alice", "of alice")
        typed(monkeypatch, "other\n")
        code, _, error = tidelog("storage", "add-user", str(folder), "root")
        assert (code, "stop it first" in error) == (1, True)
    finally:
        broker.stop()
    typed(monkeypatch, "other\n")
    assert tidelog("storage", "add-user", str(folder), "root") == (0, "changed root\n", "")
    broker = RunningBroker(folder, **SASL)
    try:
        assert signs_in(broker, "root", "other")
        assert not signs_in(broker, "root", "secret")
    finally:
        broker.stop()
