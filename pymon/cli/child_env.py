"""The environment of a training command, in which its processes attach by themselves."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pymon
from pymon.link import socket as agent

BOOTSTRAP = Path(__file__).parent / "bootstrap"


def training_environment(
    base: Mapping[str, str], run_id: str, socket: Path | None, kineto: bool = False
) -> dict[str, str]:
    """`base` with pymon switched on; `socket` None leaves the probe to look for a daemon itself."""
    env = {**base, "PYMON": "1", "PYMON_RUN_ID": run_id}
    if socket is not None:
        env[agent.ENV] = str(socket)
    if kineto:
        env["KINETO_USE_DAEMON"] = "1"
    if not pth_is_installed():
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BOOTSTRAP), base.get("PYTHONPATH")]))
        env["PYMON_BOOT_PYTHON"] = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return env


def pth_is_installed() -> bool:
    """Whether this interpreter attaches by the `.pth` of an installed pymon."""
    return any(Path(folder, "pymon.pth").is_file() for folder in _site_folders())


def daemon_environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` for `python -m pymon daemon`, which then runs from a checkout too.

    Start it in a folder of ours: `-m` looks into the working directory before anything else, and
    the user's may hold a `random.py`.
    """
    env = {key: value for key, value in base.items() if key not in ("PYMON", agent.ENV)}
    root = str(Path(pymon.__file__).parents[1])
    if root not in _site_folders():
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, base.get("PYTHONPATH")]))
    return env


def _site_folders() -> set[str]:
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders.update(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return folders
