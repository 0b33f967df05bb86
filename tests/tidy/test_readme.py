"""The programs in the README are whole, and what it shows of tests is tested as it stands there."""

import ast
import re

from tests.tidy.house import ROOT

_EXAMPLE = ROOT / "tests" / "unit" / "broker" / "test_embedded_example.py"
_OF_THE_EXAMPLE = ("tidelog_broker", "EmbeddedBroker")


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_every_python_block_compiles() -> None:
    blocks = python_blocks()
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_what_is_shown_of_the_embedded_broker_is_a_test() -> None:
    for block in python_blocks():
        if any(word in block for word in _OF_THE_EXAMPLE):
            assert block in _EXAMPLE.read_text()
