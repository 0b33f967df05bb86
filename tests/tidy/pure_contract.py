"""The contract of import-linter for the modules whose docstring says "Pure.": `pyproject.toml` names it."""

import ast
import re
from typing import Any

from importlinter.contracts.forbidden import ForbiddenContract

from tests.tidy.house import CODE_PACKAGES, modules, name, tree

_PURE = re.compile(r"(?:[.:;] |^)[Pp]ure[.:;]")


class PureContract(ForbiddenContract):
    """A forbidden contract without `source_modules`: it finds them."""

    def __init__(self, name: str, session_options: dict[str, Any], contract_options: dict[str, Any]) -> None:
        super().__init__(name, session_options, {**contract_options, "source_modules": pure_modules()})


def pure_modules() -> list[str]:
    return [
        name(path).removesuffix(".py").replace("/", ".")
        for path in modules(*CODE_PACKAGES)
        if _PURE.search(" ".join((ast.get_docstring(tree(path)) or "").split()))
    ]
