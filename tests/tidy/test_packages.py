"""Packages, modules and tests are where one looks for them."""

import ast
import re
import tomllib

import pytest

from tests.tidy.house import CODE_PACKAGES, ROOT, WHEEL_PACKAGES, modules, name, show, tree

_LONGEST_DOCSTRING = 25
_CALLERS = re.compile(r"\b(?:Called|Used|Made|Built|Driven|Read) by:? [`a-z]|\bCallers?:")
_PURE = re.compile(r"(?:[.:;] |^)[Pp]ure[.:;]")
_SHARED_NAMES = ("conftest", "__init__", "__main__")


def test_every_module_opens_with_what_it_owns() -> None:
    offences = [
        f"{name(path)}:1 {'no docstring' if text is None else f'{len(text.splitlines())} lines of docstring'}"
        for path in modules()
        if path.read_text().strip()
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


def test_every_module_that_calls_itself_pure_is_under_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    [pure] = [contract["source_modules"] for contract in contracts if "pure" in contract["name"]]
    offences = []
    for path in modules(*CODE_PACKAGES):
        module = name(path).removesuffix(".py").replace("/", ".")
        if path.parts[len(ROOT.parts)] in WHEEL_PACKAGES:
            module = f"tidelog.{module}"
        says_so = _PURE.search(" ".join((ast.get_docstring(tree(path)) or "").split()))
        if says_so and module not in pure and not module.startswith("tidelog.protocol."):
            offences.append(f"{module}: calls itself pure and is not in the contract of pyproject.toml")
    assert not offences, show(offences)


def test_unit_tests_mirror_the_tree() -> None:
    packages = {name(path.parent) for path in modules(*CODE_PACKAGES)}
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


def test_the_wheel_holds_the_packages_it_should() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]
    assert sources == {package: f"tidelog/{package}" for package in WHEEL_PACKAGES}


@pytest.mark.parametrize("package", WHEEL_PACKAGES)
def test_the_checkout_has_each_package_of_the_wheel_under_its_name(package: str) -> None:
    assert (ROOT / "tidelog" / package).resolve() == ROOT / package


@pytest.mark.parametrize("package", [*CODE_PACKAGES, "deploy", "tests"])
def test_the_architecture_names_every_package(package: str) -> None:
    assert f"`{package}/`" in (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("package", ["broker", "pipeline"])
def test_the_architecture_names_every_package_within(package: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    inner = sorted(path.name for path in (ROOT / package).iterdir() if (path / "__init__.py").exists())
    assert [folder for folder in inner if f"`{package}/{folder}/`" not in text] == []


def test_every_module_has_a_name_of_its_own_in_its_package() -> None:
    """A module and a package of one name hide each other."""
    offences = [
        name(path)
        for path in modules()
        if path.stem not in _SHARED_NAMES and (path.with_suffix("") / "__init__.py").exists()
    ]
    assert not offences, show(offences)
