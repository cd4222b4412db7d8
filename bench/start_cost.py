"""What pymon adds to the start of a process, in processor time. Used by bench/probe_cost.py and by a test."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STARTS = 60  # of an empty Python, with and without the `.pth`


def attach_time_ms() -> float:
    """From the end of `import torch` to the hooks being in; in a process of its own, best of three.

    Processor time, since on a busy machine the wall clock tells of the others.
    """
    code = (
        "import torch, time, pymon; began = time.process_time(); pymon.attach();"
        "print((time.process_time() - began) * 1e3)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.check_output([sys.executable, "-c", code], env=env) for _ in range(3)]
    return min(float(one) for one in runs)


def boot_time_ms() -> float:
    """What the packaged `.pth` adds to the start of a Python that never trains: armed minus none, the median of many
    pairs. In a Python of nothing else: an editable install brings a finder of its own that takes far longer.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pymon").symlink_to(ROOT / "pymon")
        shutil.copy(ROOT / "pymon/probe/pymon.pth", folder)
        armed = f"import site; site.addsitedir({folder!r})"
        none = f"import site; site.addsitedir({folder + '/pymon/native'!r})"  # no .pth in there
        pairs = [(start_ms(armed), start_ms(none)) for _ in range(STARTS)]
    return statistics.median(one - other for one, other in pairs)


def start_ms(code: str) -> float:
    """Processor time of one start: on a busy machine the wall clock tells of the others."""
    arguments = [sys.executable, "-S", "-c", code]
    child = os.posix_spawn(sys.executable, arguments, {**os.environ, "PYMON": "1"})
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"a Python could not be started: wait status {status}")
    return (used.ru_utime + used.ru_stime) * 1e3
