"""The features that clients find in ApiVersions."""

from tidelog.broker.features import api_versions_features
from tidelog.protocol.schema import ApiKey, decode_response, encode_response


def test_clients_find_the_protocols_of_transactions_and_groups() -> None:
    body = encode_response(ApiKey.API_VERSIONS, 4, {"error_code": 0, **api_versions_features()})
    features = decode_response(ApiKey.API_VERSIONS, 4, body).finalized_features
    levels = {feature.name: feature.max_version_level for feature in features}
    assert levels == {"group.version": 1, "share.version": 2, "transaction.version": 2}
    encode_response(ApiKey.API_VERSIONS, 0, {"error_code": 0, **api_versions_features()})
