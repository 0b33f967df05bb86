"""The files that the house rules are about, read once.

Owns the list of packages and how their files are found; what git ignores is left out. A broken rule is
shown as `path:line what`, one a line, so that an editor can jump there.
"""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHEEL_PACKAGES = ("broker", "protocol", "client", "pipeline", "cli")
"""Within `tidelog/`."""
CODE_PACKAGES = ("tidelog", "faults", "demo", "bench")
PACKAGES = (*CODE_PACKAGES, "tests")
_OTHER_FOLDERS = ("deploy", "docs", ".ci", ".github")
_OTHER_TEXT = (
    *(".dockerignore", ".pre-commit-config.yaml", "Dockerfile", "Makefile"),
    *("docker-bake.json", "docker-compose.yml", "pyproject.toml"),
)
_TEXT_SUFFIXES = (".json", ".md", ".py", ".toml", ".yaml", ".yml", "")


@cache
def modules(*packages: str) -> tuple[Path, ...]:
    """The Python files of these packages, by default of all."""
    return tuple(path for package in packages or PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


@cache
def texts() -> tuple[Path, ...]:
    """Every file that people wrote."""
    others = (path for folder in _OTHER_FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    documents = sorted(ROOT.glob("*.md"))
    named = (ROOT / name for name in _OTHER_TEXT)
    found = (*modules(), *others, *documents, *named)
    return tuple(path for path in found if path.is_file() and path.suffix in _TEXT_SUFFIXES)


@cache
def lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().splitlines())


@cache
def tree(path: Path) -> ast.Module:
    gc.disable()  # A million nodes stay, and each collection would visit them: parsing takes half the time.
    try:
        return ast.parse(path.read_text(), str(path))
    finally:
        gc.enable()


def name(path: Path) -> str:
    """Relative to the root."""
    return str(path.relative_to(ROOT))


def show(offences: list[str]) -> str:
    """For the message of an assertion."""
    return "\n" + "\n".join(offences)
