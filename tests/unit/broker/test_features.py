"""The features that clients find in ApiVersions."""

from tidelog.broker.features import api_versions_features
from tidelog.protocol.schema import ApiKey, decode_response, encode_response


def test_clients_find_that_each_transaction_has_an_epoch_of_its_own() -> None:
    body = encode_response(ApiKey.API_VERSIONS, 4, {"error_code": 0, **api_versions_features()})
    (feature,) = decode_response(ApiKey.API_VERSIONS, 4, body).finalized_features
    assert (feature.name, feature.max_version_level) == ("transaction.version", 2)
    encode_response(ApiKey.API_VERSIONS, 0, {"error_code": 0, **api_versions_features()})
