"""`tidelog pipeline` where it cannot run: one line that says what to do."""

import pytest

from cli import pipeline
from cli.failures import Failure


def test_an_installation_without_the_extra_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pipeline.find_spec
    monkeypatch.setattr(pipeline, "find_spec", lambda name: None if name == "numpy" else found(name))
    with pytest.raises(Failure, match=r"need numpy: .*pip install 'tidelog\[pipeline\]'"):
        pipeline.audit(topics=["orders"], bootstrap_servers="127.0.0.1:1")


def test_nothing_is_missing_where_the_extra_is_installed() -> None:
    pipeline._require_extra()
