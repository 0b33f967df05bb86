"""A run of the tests says what it left out because the machine has no browser."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.house import ROOT


def run_without_a_browser(tmp_path: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PATH": str(tmp_path)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout


def test_without_a_browser_its_tests_are_named_as_left_out(tmp_path: Path) -> None:
    said = run_without_a_browser(tmp_path, "tests/console/test_pages.py")
    assert "left out: tests of tests/console" in said
    assert "apt-get install chromium" in said
    assert "::test_" not in said


def test_a_run_of_other_tests_does_not_name_them(tmp_path: Path) -> None:
    said = run_without_a_browser(tmp_path, "tests/tidy/test_left_out.py")
    assert "test_a_run_of_other_tests_does_not_name_them" in said
    assert "left out" not in said.replace("test_left_out", "")
