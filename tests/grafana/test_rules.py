"""Rules by promtool: they parse, and say what their own tests expect."""

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from pymon.model.catalog import BY_NAME

FOLDER = Path(__file__).parents[2] / "grafana" / "prometheus"
RULES = sorted(FOLDER.glob("*.rules.yml"))


@pytest.mark.skipif(
    which("promtool") is None, reason="promtool is not installed (Debian package prometheus)"
)
@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.name)
def test_rules_say_what_their_tests_expect(rules):
    tests = rules.with_name(rules.name.replace(".rules.", ".test."))

    for command in (["check", "rules", rules.name], ["test", "rules", tests.name]):
        done = subprocess.run(["promtool", *command], cwd=FOLDER, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.name)
def test_rules_name_families_that_are(rules):
    named = set(re.findall(r"(?<![:\w])pymon_\w+", rules.read_text()))
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named if name not in BY_NAME} | (
        named & BY_NAME.keys()
    )

    assert [name for name in sorted(named) if name not in BY_NAME and name != "pymon_gpu_"] == []
