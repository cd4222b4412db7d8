"""Commands as a user starts them: processes of their own, in folders of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.fixture
def env(tmp_path):
    """An environment in which no daemon of this machine is found and nothing of the user's is touched."""
    plain = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYMON", "SLURM"))
    }
    return {
        **plain,
        "XDG_RUNTIME_DIR": str(_made(tmp_path / "run")),
        "XDG_STATE_HOME": str(_made(tmp_path / "state")),
        "PYTHONPATH": str(ROOT),
        "PYMON_SOCKET": str(tmp_path / "nobody.sock"),
    }


@pytest.fixture
def pymon(env):
    """Run `pymon ARGUMENTS...` to its end."""

    def run(*arguments, timeout=2 * PATIENCE_S, **more):
        return subprocess.run(
            [sys.executable, "-m", "pymon", *map(str, arguments)],
            env={**env, **more},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


def _made(folder):
    folder.mkdir(mode=0o700)
    return folder
