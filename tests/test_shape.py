"""Every part is listed, tested and explained; every float of the model names its unit."""

import dataclasses
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import pymon.collectors
import pymon.detectors
import pymon.diagnosis.rules
import pymon.model
from pymon.cli import COMMANDS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
UNIT_SUFFIXES = ("_s", "_ns", "_w", "_hz", "_bytes", "_celsius", "_ratio", "_s_total", "_ratio_max")
UNIT_SUFFIXES += ("_j_total", "_cpus", "_per_s")
# folder, what is listed in it, the method that makes a part, what each docstring must answer
FOLDERS = [
    (
        pymon.collectors,
        pymon.collectors.all_collectors(list, list),
        "collect",
        "Source: Cost: Errors:",
    ),
    (pymon.detectors, pymon.detectors.ALL, "detect", "Reads: Fires: Quiet: Errors:"),
    (pymon.diagnosis.rules, pymon.diagnosis.rules.ALL, "judge", "Needs: Holds: Ruled out: Errors:"),
]


def classes_in(package):
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == info.name:
                yield value


PARTS = [
    pytest.param(cls, listed, words, id=cls.__name__)
    for package, listed, method, words in FOLDERS
    for cls in classes_in(package)
    if hasattr(cls, method)
]


@pytest.mark.parametrize(("cls", "listed", "words"), PARTS)
def test_a_part_is_listed_tested_and_explained(cls, listed, words):
    *folders, module = cls.__module__.split(".")[1:]
    tests = [
        TESTS.joinpath(*folders, f"test_{module}.py"),
        TESTS / folders[0] / f"test_{module}.py",
    ]

    assert cls in {type(part) for part in listed}
    assert any(test.exists() for test in tests)
    assert [word for word in re.findall(r"[A-Z][a-z ]+:", words) if word not in cls.__doc__] == []


def test_every_folder_has_its_parts():
    assert {cls.values[0].__module__.split(".")[1] for cls in PARTS} == {
        "collectors",
        "detectors",
        "diagnosis",
    }


@pytest.mark.parametrize(
    "cls",
    [c for c in classes_in(pymon.model) if dataclasses.is_dataclass(c)],
    ids=lambda c: c.__name__,
)
def test_floats_of_the_model_name_their_unit(cls):
    floats = [f.name for f in dataclasses.fields(cls) if re.search(r"\bfloat\b", str(f.type))]

    assert [name for name in floats if not name.endswith(UNIT_SUFFIXES)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help(name):
    command = importlib.import_module(f"pymon.cli.{name}").command

    assert command.help
    assert command.name == name


def test_what_the_house_has_at_its_top_is_what_the_design_says():
    allowed = {"csrc", "pymon", "tests", "grafana", "systemd", "docs", "bench", "deploy"}
    allowed |= {"pyproject.toml", "setup.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    allowed |= {"LICENSE", "Makefile", "MANIFEST.in"}
    built = {"build", "dist", "pymon.egg-info"}

    assert {path.name for path in ROOT.iterdir() if path.name[0] != "."} <= allowed | built


def test_pybind11_stays_in_the_binding_files():
    outside = [
        path
        for path in (ROOT / "csrc").rglob("*.[ch]*")
        if path.parent.name != "bind" and re.search(r"pybind11|Python\.h", path.read_text())
    ]

    assert outside == []


def test_doubles_are_never_imported_by_the_package():
    importing = [
        path
        for path in (ROOT / "pymon").rglob("*.py")
        if re.search(r"(?m)^(from|import) tests\b", path.read_text())
    ]

    assert importing == []


@pytest.mark.parametrize("folder", ["core", "gpu", "trace", "doubles"])
def test_only_the_bindings_know_python(folder):
    included = re.compile(r"#\s*include\s*[<\"](Python\.h|pybind11|structmember|torch)")
    sources = [path for path in (ROOT / "csrc" / folder).rglob("*") if path.is_file()]
    assert sources
    assert [path.name for path in sources if included.search(path.read_text())] == []


def test_no_header_of_a_vendor_is_included_or_kept():
    vendor = re.compile(r"#\s*include\s*[<\"](cuda|cupti|nvml|nccl)\w*\.h")
    sources = [path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cpp", ".c")]
    assert [path.name for path in sources if vendor.search(path.read_text())] == []
    assert [
        path.name for path in sources if re.match(r"(cuda|cupti|nvml|nccl)\.h", path.name)
    ] == []
