"""A wheel built from the sources, in a fresh environment, passes the same demo."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.integration.node import ROOT


def call(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of a fresh environment that has the wheel, and sees only the dependencies of this one."""
    pytest.importorskip("torch", reason="torch is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(sources)], check=True)
    env = {**os.environ, "PYMON_NATIVE": "require"}
    call(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        sources,
        env=env,
    )
    (wheel,) = folder.glob("pymon-*.whl")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    # The dependencies are this environment's: torch alone has 700 MB. A .pth of it would attach this checkout.
    place = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(place, "zz_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_pth_and_both_modules_come_along(installed, tmp_path):
    shown = call(
        installed,
        "-c",
        "import pymon.native as n, sysconfig, os; print(n.probe()[1] + n.tools()[1]);"
        "print(os.path.exists(sysconfig.get_path('purelib') + '/pymon.pth'), n.__file__)",
        cwd=tmp_path,
    ).split()

    assert shown[0] == "True"
    assert str(ROOT) not in shown[1]


def test_the_injected_library_comes_along_and_no_double_does(installed, tmp_path):
    code = (
        "import pymon, pathlib, pymon.native as n; print(n.injection());"
        "print(*[p for p in pathlib.Path(pymon.__file__).parent.rglob('*') if 'double' in p.name])"
    )
    injection, *doubles = call(installed, "-c", code, cwd=tmp_path).split()
    assert injection.endswith("/pymon/native/libpymon_inject.so")
    assert doubles == []


def test_pymon_1_attaches_through_the_pth(installed, tmp_path):
    code = "import torch, sys; print('pymon.probe.attach' in sys.modules)"
    for value, expected in (("1", "True"), ("0", "False"), ("", "False")):
        shown = call(installed, "-c", code, cwd=tmp_path, env={**os.environ, "PYMON": value})
        assert shown.strip().endswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["data-loader", "sync"])
def test_it_passes_the_demo(installed, tmp_path, fault):
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYMON")}
    shown = call(
        installed,
        "-m",
        "pymon",
        "demo",
        "--fault",
        fault,
        "--keep",
        tmp_path / "demo",
        cwd=tmp_path,
        env=env,
    )

    assert "names the planted fault" in shown
    assert list((tmp_path / "demo").rglob("report.html"))
