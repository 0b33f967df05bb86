"""Whether a signed token (JWT) is valid, and whom it names.

Owns the checks: signature by one of the issuer's keys, `exp`, `nbf` and `iat` with a tolerance for clocks,
issuer, audience, and the claim that names the user. Only signatures by asymmetric keys count, so the key that
checks a token cannot make one.

A reason names what is wrong, never the token.

joserfc, which does the cryptography, is imported with the first token.

Source: RFC 7515, 7517, 7519; Kafka's BrokerJwtValidator; KIP-768.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.security.sasl import OAUTHBEARER, Refused, TokenClaims, invalid_credentials, is_encodable

if TYPE_CHECKING:
    from joserfc.jwk import Key, KeySet

    from tidelog.broker.configuration.broker_config import BrokerConfig

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA",
)  # fmt: skip
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}
_MOST_KEYS: Final = 100
_MOST_HEADER_BYTES: Final = 8192
"""In base64, with a chain of certificates (x5c), which is not used."""
_LAST_SECONDS: Final = 1 << 40
"""Later than any end of a token; also false for what is no number."""


class TokenRules(NamedTuple):
    """What a token must say. An empty issuer or audience is not checked."""

    issuer: str
    audience: tuple[str, ...]
    user_claim: str
    clock_skew_seconds: int

    @classmethod
    def of(cls, config: BrokerConfig) -> TokenRules:
        return cls(
            config.sasl_oauthbearer_expected_issuer,
            config.sasl_oauthbearer_expected_audience,
            config.sasl_oauthbearer_sub_claim_name,
            config.sasl_oauthbearer_clock_skew_seconds,
        )


class UnknownKey(Refused):
    """The token names a key that the key set does not have: the issuer may have a new one."""


def key_set(text: bytes) -> KeySet:
    """The keys of a JWK set that can check signatures. Raises ValueError for what is none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        held = json.loads(text)
        keys = [key for key in held["keys"] if key.get("kty") in _KEY_TYPES and key.get("use") != "enc"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a JWK set: {type(error).__name__}") from None
    if not 0 < len(keys) <= _MOST_KEYS:
        raise ValueError(f"expected 1 to {_MOST_KEYS} keys of {', '.join(_KEY_TYPES)}, got {len(keys)}")
    usable = []
    problem = ""
    for key in keys:
        # As RFC 7517 says: a key of a curve that is not known here must not keep the others out.
        try:
            usable += KeySet.import_key_set({"keys": [key]}).keys
        except (JoseError, ValueError, TypeError, KeyError) as error:
            problem = type(error).__name__
    if not usable:
        raise ValueError(f"no key can be read: {problem}")
    return KeySet(usable)


def verified(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> TokenClaims:
    """The user of a token, and its end. Raises Refused, and UnknownKey for a key that is not in the set."""
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jws import JWSRegistry

    # As RFC 7515 says: what is not known in a header is ignored, unless it is critical.
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = _MOST_HEADER_BYTES
    try:
        claims = jwt.decode(token, partial(_keys_for, keys), registry=registry).claims
        jwt.JWTClaimsRegistry(now_ms // 1000, rules.clock_skew_seconds, **_wanted(rules)).validate(claims)
    except InvalidKeyIdError:
        raise UnknownKey(invalid_credentials(OAUTHBEARER), "no key of the issuer has this id") from None
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        reason = f"the token is not valid: {getattr(error, 'error', None) or type(error).__name__}"
        claim = getattr(error, "claim", None)
        raise Refused(invalid_credentials(OAUTHBEARER), f"{reason} ({claim})" if claim else reason) from None
    user, end_seconds = claims[rules.user_claim], claims["exp"]
    if not isinstance(user, str) or not user:
        raise Refused(invalid_credentials(OAUTHBEARER), f"the claim {rules.user_claim} is not a text")
    if not is_encodable(user):
        raise Refused(invalid_credentials(OAUTHBEARER), f"the claim {rules.user_claim} is not Unicode")
    if not end_seconds < _LAST_SECONDS:
        raise Refused(invalid_credentials(OAUTHBEARER), "the claim exp is not a time")
    return TokenClaims(user, int(end_seconds * 1000))


def _keys_for(keys: KeySet, token: Any) -> KeySet | Key:
    """The keys that may have signed a token: without a key id the only one that fits its algorithm."""
    header = token.headers()
    if not header.get("kid"):
        fitting = [key for key in keys.keys if _fits(key, header["alg"])]
        if len(fitting) == 1:
            return fitting[0]
    return keys


def _fits(key: Key, algorithm: str) -> bool:
    kind = "EC" if algorithm.startswith("ES") else "OKP" if algorithm.startswith("Ed") else "RSA"
    curve = _CURVES.get(algorithm)
    is_of_kind = key.key_type == kind and curve in (None, key.get("crv"))
    return is_of_kind and key.get("alg") in (None, algorithm)


def _wanted(rules: TokenRules) -> dict[str, Any]:
    wanted: dict[str, Any] = {"exp": {"essential": True}, rules.user_claim: {"essential": True}}
    if rules.issuer:
        wanted["iss"] = {"essential": True, "value": rules.issuer}
    if rules.audience:
        wanted["aud"] = {"essential": True, "values": list(rules.audience)}
    return wanted
