"""The mechanisms as state machines: RFC's own example, what is refused, and that nothing shows who exists."""

import time
from base64 import b64decode, b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.security.sasl import (
    Accepted,
    Challenge,
    Exchange,
    KnownOrNot,
    OAuthBearerExchange,
    PasswordClaimed,
    PlainExchange,
    Refused,
    ScramExchange,
    TokenClaims,
)
from tidelog.protocol.scram import (
    ScramMechanism,
    client_proof,
    credential_of,
    keyed_hash,
    salted_password,
)

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = credential_of(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), SALT, 4096)
# RFC 7677, section 3.
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}"
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(user: str = "user") -> ScramExchange:
    return ScramExchange(SHA_256, lambda name: KnownOrNot(PENCIL, is_known=name == user), SERVER_NONCE)


def refusal(exchange: Exchange, *tokens: str | bytes) -> Refused:
    *before, last = (each.encode() if isinstance(each, str) else each for each in tokens)
    for token in before:
        assert isinstance(exchange.step(token), Challenge)
    with pytest.raises(Refused) as caught:
        exchange.step(last)
    return caught.value


def test_scram_answers_as_the_example_of_the_rfc() -> None:
    exchange = scram()
    assert exchange.step(FIRST.encode()) == Challenge(CHALLENGE.encode())
    assert exchange.step(FINAL.encode()) == Accepted(SIGNATURE, "user")


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "ü", "a b"])
def test_a_scram_name_may_have_any_character_and_comes_escaped(name: str) -> None:
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    exchange = scram(name)
    challenge = exchange.step(f"n,a={escaped},n={escaped},r=c".encode())
    assert isinstance(challenge, Challenge)
    final = final_for(f"n={escaped},r=c", challenge.token.decode(), f"n,a={escaped},".encode())
    accepted = exchange.step(final)
    assert isinstance(accepted, Accepted)
    assert accepted.user == name


def final_for(bare: str, challenge: str, header: bytes) -> bytes:
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    without_proof = f"c={b64encode(header).decode()},{challenge.split(',')[0]}"
    signature = keyed_hash(SHA_256, PENCIL.stored_key, f"{bare},{challenge},{without_proof}".encode())
    client_key = keyed_hash(SHA_256, salted, b"Client Key")
    proof = bytes(mine ^ theirs for mine, theirs in zip(signature, client_key, strict=True))
    return f"{without_proof},p={b64encode(proof).decode()}".encode()


def test_a_client_that_sends_its_nonce_twice_is_accepted_and_known_as_such_if_its_proof_covers_both() -> None:
    # What librdkafka before 2.6.1 sends; Kafka 3.9 checks the end of the nonce only.
    long_nonce = CHALLENGE.replace("r=", f"r={CLIENT_NONCE}")
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    without_proof = f"c=biws,{long_nonce.split(',')[0]}"
    auth_message = f"{FIRST.removeprefix('n,,')},{CHALLENGE},{without_proof}".encode()
    proof = b64encode(client_proof(SHA_256, salted, auth_message)).decode()
    exchange = scram()
    exchange.step(FIRST.encode())
    accepted = exchange.step(f"{without_proof},p={proof}".encode())
    assert isinstance(accepted, Accepted)
    assert (accepted.user, accepted.has_long_nonce) == ("user", True)
    for_the_short_one = FINAL.replace("r=", f"r={CLIENT_NONCE}")
    assert refusal(scram(), FIRST, for_the_short_one).reason == "wrong password"


def test_an_unknown_user_is_refused_in_the_same_round_with_the_same_words_as_a_wrong_password() -> None:
    wrong = FINAL[:-4] + "AAA="
    known, unknown = refusal(scram(), FIRST, wrong), refusal(scram("other"), FIRST, wrong)
    right_for_nobody = refusal(scram("other"), FIRST, FINAL)
    assert known.message == unknown.message == right_for_nobody.message
    assert (known.reason, unknown.reason, right_for_nobody.reason) == (
        "wrong password",
        "unknown user",
        "unknown user",
    )


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,",
        "y,,n=user,r=c",
        "p=tls-unique,,n=user,r=c",
        "n,,m=x,n=user,r=c",
        "n,,r=c,n=user",
        "n,,n=,r=c",
        "n,,n=user,r=",
        "n,,n=us=er,r=c",
        "n,,n=us=2cer,r=c",
        "n,,n=user,r=c,tokenauth=true",
        "n,,n=user,r=c,bad",
        "n,a=other,n=user,r=c",
        b"n,,n=\xff,r=c",
    ],
)
def test_a_first_message_that_is_not_scram_without_channel_binding_is_refused(first: str | bytes) -> None:
    refusal(scram(), first)


def test_a_delegation_token_is_refused_with_its_reason_in_the_log_only() -> None:
    refused = refusal(scram(), f"{FIRST},tokenauth=true")
    assert "delegation token" in refused.reason
    assert "token" not in refused.message


@pytest.mark.parametrize(
    "final",
    [
        "",
        FINAL.replace("c=biws", "c=eSws"),
        FINAL.replace(SERVER_NONCE, "x"),
        FINAL.replace(SERVER_NONCE, SERVER_NONCE + "x"),
        FINAL.replace("p=", "p=*"),
        FINAL.replace("p=dHzb", "p=dHz"),
        FINAL.rpartition(",")[0],
        FIRST,
    ],
)
def test_a_final_message_that_does_not_follow_the_first_is_refused(final: str) -> None:
    refusal(scram(), FIRST, final)


def test_an_extension_of_scram_that_is_not_known_is_ignored() -> None:
    challenge = scram().step(f"{FIRST},future=1".encode())
    assert challenge == Challenge(CHALLENGE.encode())


def test_plain_names_user_and_password() -> None:
    assert PlainExchange().step(b"\0alice\0p w") == PasswordClaimed("alice", "p w")
    assert PlainExchange().step(b"alice\0alice\0p") == PasswordClaimed("alice", "p")


@pytest.mark.parametrize(
    "token",
    [b"", b"alice", b"\0alice", b"\0\0p", b"\0alice\0", b"bob\0alice\0p", b"\0alice\0p\0x", b"\0alice\0\xff"],
)
def test_what_is_not_plain_is_refused(token: bytes) -> None:
    assert b"alice" not in refusal(PlainExchange(), token).message.encode()


def bearer(token: str) -> TokenClaims:
    if token != "good.token.here":
        raise Refused("Authentication failed", "not signed")
    return TokenClaims("svc", 5_000)


def oauth(**pairs: str) -> bytes:
    return b"n,,\x01" + b"".join(f"{name}={value}\x01".encode() for name, value in pairs.items()) + b"\x01"


def test_a_bearer_token_names_its_user_and_its_end_beside_extensions() -> None:
    token = oauth(auth="Bearer good.token.here", traceId="7")
    assert OAuthBearerExchange(bearer).step(token) == Accepted(b"", "svc", 5_000)


def test_a_refused_token_is_a_challenge_first_and_then_the_end_whatever_the_client_sends() -> None:
    exchange = OAuthBearerExchange(bearer)
    assert exchange.step(oauth(auth="Bearer bad")) == Challenge(b'{"status":"invalid_token"}')
    assert refusal(exchange, b"\x01").reason == "not signed"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,\x01\x01",
        oauth(auth="Basic x"),
        oauth(auth="Bearer "),
        oauth(extension="x"),
        oauth(auth="Bearer good.token.here")[:-1],
        b"n,a=other,\x01auth=Bearer good.token.here\x01\x01",
        b"y,,\x01auth=Bearer good.token.here\x01\x01",
    ],
)
def test_what_is_not_oauthbearer_is_refused(token: bytes) -> None:
    refusal(OAuthBearerExchange(bearer), token)


EXCHANGES = (PlainExchange, scram, lambda: OAuthBearerExchange(bearer))
PIECES = st.sampled_from(b"n|y|,|n,,|n=user|r=|c|=2C|\0|\x01|auth=Bearer |x.y.z|p=|biws".split(b"|"))
TOKENS = st.binary(max_size=30) | st.lists(PIECES, max_size=12).map(b"".join)
LARGEST = (
    b"a" * 524_288,
    b"n,," + b"," * 524_288,
    b"n,,\x01" + b"a=\x01" * 170_000,
    b"n,,n=u,r=c" + b",a=b" * 130_000,
)


@given(st.integers(0, 2), st.lists(TOKENS, max_size=4))
def test_no_bytes_do_more_than_be_refused_or_answered_and_no_answer_is_much_longer(
    kind: int, tokens: list[bytes]
) -> None:
    exchange = EXCHANGES[kind]()
    with suppress(Refused):
        for token in tokens:
            result = exchange.step(token)
            if isinstance(result, PasswordClaimed):
                return
            assert isinstance(result, Challenge)
            assert len(result.token) < len(token) + 200


PLACES = st.integers(0, len(FINAL))


@given(st.booleans(), PLACES, PLACES, st.binary(max_size=3))
def test_a_client_whose_right_messages_are_damaged_is_not_signed_in(
    is_first: bool, begin: int, end: int, inserted: bytes
) -> None:
    """Any part of a message is left out or repeated, and any bytes are in its place."""

    def damaged(message: str) -> bytes:
        return message[:begin].encode() + inserted + message[end:].encode()

    first, final = (damaged(FIRST), FINAL.encode()) if is_first else (FIRST.encode(), damaged(FINAL))
    # The last digit of base64 has bits that do not count.
    if first != FIRST.encode() or final[:-2] != FINAL[:-2].encode():
        exchange = scram()
        with pytest.raises(Refused):
            list(map(exchange.step, (first, final)))


@pytest.mark.parametrize("kind", range(3))
def test_the_largest_tokens_are_read_in_one_pass(kind: int) -> None:
    for token in LARGEST:
        began = time.process_time()
        with suppress(Refused):
            EXCHANGES[kind]().step(token)
        assert time.process_time() - began < 2
