"""Which signed tokens are accepted, and whom they name."""

import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from tidelog.broker.security.sasl import Refused, TokenClaims
from tidelog.broker.security.tokens import TokenRules, UnknownKey, key_set, verified

NOW_S = 1_700_000_000
RULES = TokenRules("https://issuer", ("kafka", "other"), "sub", 30)
CLAIMS = {"sub": "svc", "iss": "https://issuer", "aud": "kafka", "iat": NOW_S, "exp": NOW_S + 60}
KEYS = {
    "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
    "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
    "PS256": RSAKey.generate_key(2048, {"kid": "pss"}),
}
PUBLISHED = key_set(json.dumps({"keys": [key.as_dict(private=False) for key in KEYS.values()]}).encode())


def token(algorithm: str = "ES256", key: Any = None, **changed: object) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    signed_with = key or KEYS[algorithm]
    header = {"alg": algorithm, "kid": signed_with.kid}
    return jws.serialize_compact(header, json.dumps(claims), signed_with, [algorithm])


def refusal(text: str, rules: TokenRules = RULES) -> Refused:
    with pytest.raises(Refused) as caught:
        verified(text, PUBLISHED, rules, NOW_S * 1000)
    assert text not in caught.value.reason
    assert caught.value.message.startswith("Authentication failed")
    return caught.value


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_that_the_issuer_signed_names_its_user_and_its_end(algorithm: str) -> None:
    found = verified(token(algorithm), PUBLISHED, RULES, NOW_S * 1000)
    assert found == TokenClaims("svc", (NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": NOW_S - 30}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": "later"}, "exp"),
        ({"nbf": NOW_S + 31}, "nbf"),
        ({"iat": NOW_S + 31}, "iat"),
        ({"iss": "https://other"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "mail"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": 7}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a\ud800"}, "sub is not Unicode"),
        ({"exp": 10**15}, "exp"),
    ],
)
def test_a_claim_that_is_missing_or_wrong_is_named_in_the_reason(
    changed: dict[str, object], reason: str
) -> None:
    assert reason in refusal(token(**changed)).reason


def test_clocks_may_differ_by_the_configured_time() -> None:
    late = token(exp=NOW_S - 29, nbf=NOW_S + 29, iat=NOW_S + 29)
    assert verified(late, PUBLISHED, RULES, NOW_S * 1000).user == "svc"
    refusal(late, RULES._replace(clock_skew_seconds=5))


def test_one_of_several_audiences_is_enough_and_the_user_may_be_in_another_claim() -> None:
    several = token(aud=["mail", "other"], client_id="app")
    assert verified(several, PUBLISHED, RULES._replace(user_claim="client_id"), NOW_S * 1000).user == "app"


def test_issuer_and_audience_are_not_checked_where_none_is_expected() -> None:
    anyone = TokenRules("", (), "sub", 0)
    assert verified(token(iss=None, aud="mail"), PUBLISHED, anyone, NOW_S * 1000).user == "svc"


def test_a_token_of_a_key_that_is_not_published_is_told_apart_because_the_issuer_may_have_a_new_one() -> None:
    assert isinstance(refusal(token(key=ECKey.generate_key("P-256", {"kid": "new"}))), UnknownKey)


def test_a_forged_signature_is_refused() -> None:
    forged = ECKey.generate_key("P-256", {"kid": "ec"})
    assert not isinstance(refusal(token(key=forged)), UnknownKey)


def test_a_token_without_a_signature_or_with_one_by_a_shared_secret_is_refused() -> None:
    header = "eyJhbGciOiJub25lIiwia2lkIjoiZWMifQ"
    body = token().split(".")[1]
    refusal(f"{header}.{body}.")
    refusal(token("HS256", key=OctKey.import_key("s" * 64, {"kid": "rsa"})))


def test_a_header_may_be_long_and_have_parts_that_nobody_knows() -> None:
    header = {"alg": "ES256", "kid": "ec", "x5c": ["A" * 2000], "ours": 1}
    registry = JWSRegistry(algorithms=["ES256"], strict_check_header=False)
    long = jwt.encode(header, CLAIMS, KEYS["ES256"], registry=registry)
    assert verified(long, PUBLISHED, RULES, NOW_S * 1000).user == "svc"


def test_a_token_without_a_key_id_is_checked_by_the_only_key_that_fits_it() -> None:
    def unnamed(algorithm: str) -> str:
        return jwt.encode({"alg": algorithm}, CLAIMS, KEYS[algorithm], [algorithm])

    assert verified(unnamed("ES256"), PUBLISHED, RULES, NOW_S * 1000).user == "svc"
    assert isinstance(refusal(unnamed("RS256")), UnknownKey)  # Two keys fit.
    alone = {**KEYS["RS256"].as_dict(private=False), "alg": "RS256"}
    other = {**KEYS["PS256"].as_dict(private=False), "alg": "PS256"}
    keys = key_set(json.dumps({"keys": [alone, other]}).encode())
    for algorithm in ("RS256", "PS256"):
        assert verified(unnamed(algorithm), keys, RULES, NOW_S * 1000).user == "svc"


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "..", "x" * 200_000, "é.é.é", f"{token()}x"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        verified(text, PUBLISHED, RULES, NOW_S * 1000)


EC = KEYS["ES256"].as_dict(private=False)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}).encode(),
        json.dumps({"keys": [{**EC, "use": "enc"}]}).encode(),
        json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": "!", "y": "!"}]}).encode(),
        json.dumps({"keys": [EC] * 101}).encode(),
        b"[" * 100_000,
    ],
)
def test_what_is_no_set_of_public_keys_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        key_set(text)


def test_keys_that_cannot_check_signatures_are_left_out() -> None:
    strange = [{**EC, "kid": "strange", "crv": "P-999"}, {"kty": "RSA", "kid": "half", "e": "AQAB"}]
    kept = key_set(
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, EC, {"kty": "new"}, *strange]}).encode()
    )
    assert isinstance(kept, KeySet)
    assert [key.kid for key in kept] == ["ec"]
