"""Whether a signed token (JWT) is valid, and whom it names.

Owns the checks: signature by one of the issuer's keys, `exp`, `nbf` and `iat` with a tolerance for clocks,
issuer, audience, and the claim that names the user. Only signatures by asymmetric keys count, so whoever can
check a token cannot make one.

Invariants: the same token, keys and time give the same result. A reason names what is wrong, never the token.

joserfc does the cryptography. It is imported with the first token, because it takes longer than the start
may.

Source: RFC 7515, 7517, 7519; Kafka's BrokerJwtValidator; KIP-768.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.security.sasl import OAUTHBEARER, Refused, TokenClaims, invalid_credentials

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

    from tidelog.broker.configuration.broker_config import BrokerConfig

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA",
)  # fmt: skip
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_MOST_KEYS: Final = 100
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
        raise ValueError(f"expected 1 to {_MOST_KEYS} keys of {', '.join(_KEY_TYPES)}, came {len(keys)}")
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

    try:
        claims = jwt.decode(token, keys, ALGORITHMS).claims
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
    if not end_seconds < _LAST_SECONDS:
        raise Refused(invalid_credentials(OAUTHBEARER), "the claim exp is not a time")
    return TokenClaims(user, int(end_seconds * 1000))


def _wanted(rules: TokenRules) -> dict[str, Any]:
    wanted: dict[str, Any] = {"exp": {"essential": True}, rules.user_claim: {"essential": True}}
    if rules.issuer:
        wanted["iss"] = {"essential": True, "value": rules.issuer}
    if rules.audience:
        wanted["aud"] = {"essential": True, "values": list(rules.audience)}
    return wanted
