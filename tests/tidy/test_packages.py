"""Packages, modules and tests are where one looks for them."""

import ast
import re

import pytest

from tests.tidy.house import CODE_PACKAGES, ROOT, WHEEL_PACKAGES, modules, name, show, tree

_LONGEST_DOCSTRING = 25
_CALLERS = re.compile(r"\b(?:Called|Used|Made|Built|Driven|Read) by:? [`a-z]|\bCallers?:")
_SHARED_NAMES = ("conftest", "__init__", "__main__")


def test_every_module_opens_with_what_it_owns() -> None:
    offences = [
        f"{name(path)}:1 {'no docstring' if text is None else f'{len(text.splitlines())} lines of docstring'}"
        for path in modules()
        if path.read_text().strip()
        and path.name != "__init__.py"
        and ((text := ast.get_docstring(tree(path))) is None or len(text.splitlines()) > _LONGEST_DOCSTRING)
    ]
    assert not offences, show(offences)


def test_no_docstring_lists_callers() -> None:
    """Such lists become wrong with the next caller, and an editor finds callers."""
    offences = [
        f"{name(path)}: {found[0]}"
        for path in modules(*CODE_PACKAGES)
        if (found := _CALLERS.search(ast.get_docstring(tree(path)) or ""))
    ]
    assert not offences, show(offences)


def test_unit_tests_mirror_the_tree() -> None:
    packages = {name(path.parent).removeprefix("tidelog/") for path in modules(*CODE_PACKAGES)}
    offences = []
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        place = str(path.parent.relative_to(ROOT / "tests" / "unit"))
        if place not in packages:
            offences.append(f"{name(path)}: no package {place} exists")
    assert not offences, show(offences)


def test_every_folder_of_tests_is_a_package_so_that_names_may_repeat() -> None:
    offences = [
        name(folder)
        for folder in {path.parent for path in modules("tests")}
        if not (folder / "__init__.py").exists()
    ]
    assert not offences, show(offences)


def test_the_only_links_are_the_three_names_at_the_top() -> None:
    """A tool that follows links finds these files twice; one that does not finds each once, in tidelog/."""
    places = (*ROOT.iterdir(), *(ROOT / "tidelog").rglob("*"))
    links = {name(path): path.readlink().as_posix() for path in places if path.is_symlink()}
    assert links == {package: f"tidelog/{package}" for package in ("broker", "client", "protocol")}


@pytest.mark.parametrize("package", [*WHEEL_PACKAGES, *CODE_PACKAGES, "deploy", "tests"])
def test_the_architecture_names_every_package(package: str) -> None:
    assert re.search(rf"\b{package}/", (ROOT / "ARCHITECTURE.md").read_text())


def test_the_architecture_says_for_each_change_which_existing_files_to_open() -> None:
    rows = re.findall(r"^\| [^|]+ \| (.*`.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    files = [file for row in rows for file in re.findall(r"`([\w/]+(?:\.\w+|/))`", row) if "/" in file]
    assert len(files) > 50
    missing = [file for file in files if not ((ROOT / file).exists() or (ROOT / "tidelog" / file).exists())]
    assert not missing, show([f"ARCHITECTURE.md: {file} does not exist" for file in missing])


def test_every_module_has_a_name_of_its_own_in_its_package() -> None:
    """A module and a package of one name hide each other."""
    offences = [
        name(path)
        for path in modules()
        if path.stem not in _SHARED_NAMES and (path.with_suffix("") / "__init__.py").exists()
    ]
    assert not offences, show(offences)
