"""Rooms, modules and tests are where one looks for them."""

import ast
import tomllib
from pathlib import Path

import pytest

from tests.tidy.house import CODE_ROOMS, ROOT, WHEEL_ROOMS, modules, name, show, tree

_LONGEST_DOCSTRING = 25
_SHARED_NAMES = ("conftest", "__init__", "__main__")


def code_folders() -> dict[str, Path]:
    """Every package by its own name and by its path: `storage`, `broker/storage`."""
    folders = {path.parent for path in modules(*CODE_ROOMS)}
    by_name = {folder.name: folder for folder in folders}
    return by_name | {name(folder): folder for folder in folders}


def test_every_module_opens_with_what_it_owns() -> None:
    offences = [
        f"{name(path)}:1 {'no docstring' if text is None else f'{len(text.splitlines())} lines of docstring'}"
        for path in modules()
        if path.read_text().strip()
        and ((text := ast.get_docstring(tree(path))) is None or len(text.splitlines()) > _LONGEST_DOCSTRING)
    ]
    assert not offences, show(offences)


def test_unit_tests_mirror_the_tree() -> None:
    folders = code_folders()
    offences = []
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        place = path.parent.relative_to(ROOT / "tests" / "unit")
        if str(place) not in folders:
            offences.append(f"{name(path)}: there is no room {place}")
    assert not offences, show(offences)


def test_every_folder_of_tests_is_a_package_so_that_names_may_repeat() -> None:
    offences = [
        name(folder)
        for folder in {path.parent for path in modules("tests")}
        if not (folder / "__init__.py").exists()
    ]
    assert not offences, show(offences)


def test_the_wheel_holds_the_rooms_it_should() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]
    assert sources == {room: f"tidelog/{room}" for room in WHEEL_ROOMS}


@pytest.mark.parametrize("room", WHEEL_ROOMS)
def test_the_checkout_has_each_room_of_the_wheel_under_its_name(room: str) -> None:
    assert (ROOT / "tidelog" / room).resolve() == ROOT / room


@pytest.mark.parametrize("room", [*CODE_ROOMS, "deploy", "tests"])
def test_the_architecture_names_every_room(room: str) -> None:
    assert f"`{room}/`" in (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("room", ["broker"])
def test_the_architecture_names_every_room_within(room: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    inner = sorted(path.name for path in (ROOT / room).iterdir() if (path / "__init__.py").exists())
    assert [folder for folder in inner if f"`{room}/{folder}/`" not in text] == []


def test_every_module_has_a_name_of_its_own_in_its_room() -> None:
    """A module and a package of one name hide each other."""
    offences = [
        name(path)
        for path in modules()
        if path.stem not in _SHARED_NAMES and (path.with_suffix("") / "__init__.py").exists()
    ]
    assert not offences, show(offences)
