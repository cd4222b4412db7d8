"""Who this process is: rank and job, from the environment that launchers set."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from pymon.link.wire import Hello

# First one that is set wins: torchrun and its kin, then Slurm, then Open MPI.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
_JOB = ("PYMON_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_NO_JOB = "none"  # what torchrun calls a run that was given no id


def hello(attach_id: str) -> Hello:
    """The introduction of this process, as its environment stands now."""
    env = os.environ
    torch = sys.modules.get("torch")
    return Hello(
        attach_id=attach_id,
        pid=os.getpid(),
        rank=_number(env, _RANK, torch, "get_rank"),
        local_rank=_number(env, _LOCAL_RANK),
        world_size=_number(env, _WORLD_SIZE, torch, "get_world_size"),
        job_id=_text(env, _JOB),
        run_id=env.get("PYMON_RUN_ID", ""),
        script=_script(),
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(getattr(torch, "__version__", "")),
        attached_real_ns=time.time_ns(),
    )


def restarts(env: Mapping[str, str]) -> int | None:
    """How often this job was started again, by all that count it (torchrun, Slurm's requeue); None where none does."""
    counts = [int(env[name]) for name in _RESTARTS if env.get(name, "").isdecimal()]
    return sum(counts) if counts else None


def _text(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if (value := env.get(name, "")) and value != _NO_JOB:
            return value
    return ""


def _number(
    env: Mapping[str, str], names: tuple[str, ...], torch: Any = None, ask: str = ""
) -> int | None:
    """By the environment, else by torch where the job gave its rank to `init_process_group` alone."""
    text = _text(env, names)
    if text.isdecimal():
        return int(text)
    distributed = getattr(torch, "distributed", None)
    if (
        ask
        and distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
    ):
        return int(getattr(distributed, ask)())
    return None


def _script() -> str:
    """The file's name alone: paths and arguments may hold what is nobody's business."""
    arguments: list[str] = getattr(sys, "argv", None) or [""]
    return os.path.basename(arguments[0])
