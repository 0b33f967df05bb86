"""The table of what the client asks for: narrower than what has codecs."""

from tidelog.client.asked_apis import ASKED_APIS
from tidelog.protocol.schema import APIS


def test_every_version_that_is_asked_for_has_codecs() -> None:
    for key, asked in ASKED_APIS.items():
        api = APIS[key]
        assert api.min_version <= asked.first <= asked.last <= api.max_version, api.name
