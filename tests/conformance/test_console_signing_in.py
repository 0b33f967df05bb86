"""The console asks who a visitor is, and keeps the answer in a cookie that only its own pages send."""

import json
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.certificates import Certificates
from tests.conformance.console_site import Answer, Visitor
from tests.conformance.secured import PASSWORD, add_user, secured
from tests.conformance.test_sasl_tokens import KEY, token
from tidelog.broker.app import Broker

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def sign_in(visitor: Visitor, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    body = urlencode(fields).encode()
    return await visitor.ask("POST", "/console/sign-in", data=body, headers={**FORM, **(headers or {})})


def cookie_of(answer: Answer) -> "Morsel[str]":
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return cookie


async def signed_in(broker: Broker, user: str = "alice", password: str = PASSWORD) -> Visitor:
    answer = await sign_in(Visitor(broker), user=user, password=password)
    assert "Set-Cookie" in answer.headers, answer
    cookie = cookie_of(answer)
    return Visitor(broker, {"Cookie": f"{cookie.key}={cookie.value}"})


async def test_a_stranger_sees_only_the_form_and_learns_no_path(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        stranger = Visitor(broker)
        for path in ("/", "/console", "/console/broker", "/console/nowhere"):
            answer = await stranger.get(path)
            assert (answer.status, answer.headers["Location"].split("?")[0]) == (303, "/console/sign-in")
        problems = [await stranger.get(f"/api/v1/{each}") for each in ("broker", "openapi.json", "nowhere")]
        assert {(each.status, each.text) for each in problems} == {(401, problems[0].text)}
        assert problems[0].json["code"] == "SASL_AUTHENTICATION_FAILED"
        assert (await stranger.ask("POST", "/console/broker")).status == 401
        form = await stranger.get("/console/sign-in")
        assert form.status == 200
        assert broker.services.catalog.cluster_id not in form.text
        assert "/console/broker" not in form.text
        assert (await stranger.get("/console/static/console.css")).status == 200
        part = await stranger.ask("GET", "/console/broker", headers={"HX-Request": "true"})
        assert (part.status, part.headers["HX-Redirect"]) == (401, "/console/sign-in")


async def test_a_user_signs_in_works_and_signs_out(tmp_path: Path, logged: list[Any]) -> None:
    async with secured(tmp_path) as broker:
        stranger = Visitor(broker)
        asked_for = (await stranger.get("/console/broker?a=%C3%BC&b=1")).headers["Location"]
        form = await stranger.get(asked_for)
        assert 'value="/console/broker?a=%C3%BC&amp;b=1"' in form.text
        answer = await sign_in(stranger, user="alice", password=PASSWORD, next="/console/broker?a=%C3%BC&b=1")
        assert (answer.status, answer.headers["Location"]) == (303, "/console/broker?a=%C3%BC&b=1")
        cookie = cookie_of(answer)
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
        assert 0 < int(cookie["max-age"]) <= 12 * 3600
        assert len(cookie.value) >= 43
        alice = Visitor(broker, {"Cookie": f"{cookie.key}={cookie.value}"})
        assert (await alice.get("/console/broker")).status == 200
        assert (await alice.get("/api/v1/broker")).status == 200
        assert (await alice.get("/metrics")).status == 401, "a cookie counts in the console only"
        left = await alice.ask("POST", "/console/sign-out", headers=FORM)
        assert (left.status, left.headers["Location"]) == (303, "/console/sign-in")
        assert cookie_of(left)["max-age"] == "0"
        assert (await alice.get("/api/v1/broker")).status == 401
        events = [event for event in logged if event["event"].startswith("console_signed")]
        assert [(event["event"], event["user"]) for event in events] == [
            ("console_signed_in", "alice"),
            ("console_signed_out", "alice"),
        ]
        assert cookie.value not in str(logged)
        assert "sesame" not in str(logged)


async def test_a_wrong_password_is_counted_logged_and_delayed_as_everywhere(
    tmp_path: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured(tmp_path, connection_failed_authentication_delay_ms=1) as broker:
        for user, password in (("alice", "barley"), ("nobody", "barley"), ("", "")):
            answer = await sign_in(Visitor(broker), user=user, password=password)
            assert (answer.status, answer.headers["Location"]) == (
                303,
                "/console/sign-in?failed=true&next=%2F",
            )
            assert "Set-Cookie" not in answer.headers
        assert "Sign-in failed" in (await Visitor(broker).get(answer.headers["Location"])).text
    failures = [event for event in logged if event["event"] == "authentication_failed"]
    assert [(event["listener"], event["mechanism"]) for event in failures] == [("HTTP", "basic")] * 3
    assert "barley" not in str(logged)


@pytest.mark.usefixtures("watchful_streams")
@pytest.mark.parametrize("change", ["deleted", "another password"])
async def test_a_change_of_the_user_ends_the_session_and_its_streams(tmp_path: Path, change: str) -> None:
    async with secured(tmp_path) as broker:
        alice, bob = await signed_in(broker), await signed_in(broker, "bob")
        assert (await alice.get("/api/v1/broker")).status == 200
        async with alice.follow("/api/v1/events/log") as events:
            if change == "deleted":
                held = broker.services.users.get("alice")
                assert held is not None
                await broker.services.users.change("alice", dict.fromkeys(held))
            else:
                await add_user(broker, "alice", "another one")
            assert (await alice.get("/api/v1/broker")).status == 401
            name, refusal = await anext(events)
            assert (name, refusal["code"]) == ("refused", "SASL_AUTHENTICATION_FAILED")
        assert (await bob.get("/api/v1/broker")).status == 200


async def test_no_page_of_another_site_signs_a_visitor_in_or_out(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        alice = await signed_in(broker)
        for headers in (
            {"Origin": "https://elsewhere.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            answer = await sign_in(alice, headers, user="bob", password=PASSWORD)
            assert (answer.status, answer.headers.get("Set-Cookie")) == (403, None)
            assert (await alice.ask("POST", "/console/sign-out", headers={**FORM, **headers})).status == 403
        assert (await alice.get("/console/sign-out")).status == 403
        assert (await alice.get("/api/v1/broker")).status == 200


async def test_the_form_leads_nowhere_else_and_takes_nothing_large(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        visitor = Visitor(broker)
        for wanted in ("https://elsewhere.example/", "//elsewhere.example", "/console/\r\nX: y", "/metrics"):
            answer = await sign_in(visitor, user="alice", password=PASSWORD, next=wanted)
            assert (answer.status, answer.headers["Location"]) == (303, "/")
        large = await sign_in(visitor, user="a" * 20_000, password="p")
        assert large.status == 413
        assert (await visitor.ask("POST", "/console/sign-in", {"user": "alice"})).status == 403


async def test_a_link_of_another_site_finds_the_session(tmp_path: Path) -> None:
    """The browser leaves a strict cookie out of such a request, and sends it with the page's own refresh."""
    async with secured(tmp_path) as broker:
        answer = await Visitor(broker, {"Sec-Fetch-Site": "cross-site"}).get("/console/broker")
        assert (answer.status, answer.headers["Refresh"], answer.text) == (200, "0", "")


async def test_over_tls_the_cookie_is_secure_and_a_certificate_needs_none(
    tmp_path: Path, certificates: Certificates
) -> None:
    settings = {
        "http.security.protocol": "SSL",
        "listener.name.http.ssl.keystore.location": certificates.keystore,
        "listener.name.http.ssl.truststore.location": certificates.authority,
        "listener.name.http.ssl.client.auth": "requested",
        "listener.name.http.ssl.principal.mapping.rules": "RULE:CN=(.*?),.*/$1/",
    }
    async with secured(tmp_path, **settings) as broker:
        stranger = Visitor(broker, context=certificates.context())
        assert (await stranger.get("/api/v1/broker")).status == 401
        cookie = cookie_of(await sign_in(stranger, user="alice", password=PASSWORD))
        assert cookie["secure"] is True
        assert cookie.key.startswith("__Host-")
        alice = Visitor(broker, {"Cookie": f"{cookie.key}={cookie.value}"}, certificates.context())
        assert (await alice.get("/api/v1/broker")).status == 200
        carol = Visitor(broker, context=certificates.context(certificates.client("carol")))
        assert (await carol.get("/api/v1/broker")).status == 200
        assert (await carol.get("/console/broker")).status == 200


async def test_a_token_is_shown_in_each_request_or_signs_in(tmp_path: Path, logged: list[Any]) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    prefix = "listener.name.sasl.plaintext.oauthbearer.sasl.oauthbearer."
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": 0,
    }
    async with secured(tmp_path, **settings) as broker:
        good, bad = token(), token(-1)
        for shown, status in ((good, 200), (bad, 401)):
            script = Visitor(broker, {"Authorization": f"Bearer {shown}"})
            assert (await script.get("/api/v1/broker")).status == status
            assert (await script.get("/metrics")).status == status
        assert 'name="token"' in (await Visitor(broker).get("/console/sign-in")).text
        cookie = cookie_of(await sign_in(Visitor(broker), token=good))
        assert int(cookie["max-age"]) <= 600, "the session ends with the token"
        svc = Visitor(broker, {"Cookie": f"{cookie.key}={cookie.value}"})
        assert (await svc.get("/api/v1/broker")).status == 200
        assert "Set-Cookie" not in (await sign_in(Visitor(broker), token=bad)).headers
        assert good.rpartition(".")[2] not in str(logged)
