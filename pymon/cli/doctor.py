"""`pymon doctor`: what is there, what is absent, and why."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from pymon import __version__, native
from pymon.base.units import human_bytes
from pymon.cli.child_env import pth_is_installed
from pymon.cli.private_daemon import runtime_folder, state_folder
from pymon.link import socket as agent

MIN_SHM_BYTES = 64 * 1024 * 1024  # Docker's default, which loader workers outgrow (user-cases B01)
NVML_S = (
    10.0  # a first nvmlInit without persistence mode takes seconds; a hung driver never returns
)
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")  # a folder each, made by the kernel module
_STYLES = {"ok": "green", "absent": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: `ok`, `absent` (pymon does without) or `broken` (it cannot)."""

    name: str
    state: str
    text: str


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--strict", is_flag=True, help="Exit code 1 also where something is absent.")
def command(as_json: bool, strict: bool) -> int:
    """Say what works here, what is absent, and why.

    Exit code 0 unless something is broken; what is absent by nature (no GPU) is not, but with --strict.

    \b
    Examples:
      pymon doctor                 what a person reads
      pymon doctor --strict        for a node that must have everything
      pymon doctor --json | jq '.checks[] | select(.state != "ok")'
    """
    checks = [check() for check in CHECKS]
    if as_json:
        click.echo(json.dumps({"version": __version__, "checks": [asdict(one) for one in checks]}))
    else:
        console = Console(highlight=False)
        for one in checks:
            state = Text(f"{one.state:<7}", style=_STYLES[one.state])
            console.print(state, Text(f"{one.name:<12} {one.text}"), soft_wrap=True)
    failing = ("broken", "absent") if strict else ("broken",)
    return 1 if any(one.state in failing for one in checks) else 0


def _python() -> Check:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    broken = platform.system() != "Linux"
    return Check("python", "broken" if broken else "ok", text + "; Linux is needed" * broken)


def _probe() -> Check:
    module, why_not = native.probe()
    return Check("probe", "ok" if module else "broken", why_not or "the native probe loads")


def _tools() -> Check:
    module, why_not = native.tools()
    return Check("tools", "ok" if module else "broken", why_not or "the native trace engine loads")


def _pth() -> Check:
    if pth_is_installed():
        return Check("pymon.pth", "ok", "PYMON=1 attaches training processes of this environment")
    text = "not installed in this environment: only `pymon run` and pymon.attach() work here"
    return Check("pymon.pth", "absent", f"{text} (pip install . installs it)")


def _torch() -> Check:
    if importlib.util.find_spec("torch") is None:
        text = "not in this environment; the daemon needs none, the demo does"
        return Check("torch", "absent", text)
    try:
        version = importlib.metadata.version("torch")  # without importing it, which takes seconds
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    if version[0].isdigit() and tuple(map(int, version.split(".")[:2])) < (2, 4):
        return Check("torch", "broken", f"{version}; 2.4 or newer is needed")
    return Check("torch", "ok", version)


def _kineto() -> Check:
    if os.environ.get("KINETO_USE_DAEMON"):
        return Check(
            "kineto", "ok", "KINETO_USE_DAEMON is set: unmodified processes can be captured"
        )
    text = "KINETO_USE_DAEMON is not set: only processes with a probe can be captured"
    return Check("kineto", "absent", text)


def _cuda_events() -> Check:
    return _gpu_layer(
        "cuda events", 0, "GPU time of steps and phases, once CUDA is up in a trainer"
    )


def _cupti() -> Check:
    text = "kernels and copies summed by class, once CUDA is up in a trainer"
    check = _gpu_layer("cupti", 1, text)
    if check.text.startswith("no libcupti") and (library := _libcupti_of_torch()):
        return Check("cupti", "ok", f"{text} (with {library})")
    return check


def _counters() -> Check:
    """What the probe's child would find; whether the chip can, and whether somebody has the counters, it finds then."""
    text = "`pymon capture --counters` can be asked for; the clocks of the GPU are locked meanwhile"
    module, why_not = native.probe()
    if module is None:
        return Check("counters", "absent", f"the native probe does not load ({why_not})")
    why_not = module.counters_why_not()
    if why_not.startswith("no libcupti") and (library := _libcupti_of_torch()):
        return Check("counters", "ok", f"{text} (with {library})")
    return Check("counters", "absent" if why_not else "ok", why_not or text)


def _libcupti_of_torch() -> str:
    """CUDA builds of torch bring it in a wheel of NVIDIA's, where the loader finds it once torch is there."""
    for folder in map(Path, sys.path):
        for library in folder.glob("nvidia/*/lib/libcupti.so.1[23]"):
            return str(library)
    return ""


def _gpu_layer(name: str, index: int, text: str) -> Check:
    """By the probe's own loader: it makes no CUDA call, and touches CUPTI only where there is a driver."""
    module, why_not = native.probe()
    if module is None:
        return Check(name, "absent", f"the native probe does not load ({why_not})")
    if why_not := module.gpu_why_not()[index]:
        return Check(name, "absent", why_not)
    if _has_no_gpu():
        return Check(
            name, "absent", "there is a driver, but no GPU (/proc/driver/nvidia/gpus is empty)"
        )
    return Check(name, "ok", text)


def _has_no_gpu() -> bool:
    """As the driver itself tells it: asking CUDA would take a second and a context."""
    return DRIVER_GPUS.is_dir() and not any(DRIVER_GPUS.iterdir())


def _injection() -> Check:
    library = native.injection()
    if library is None:
        return Check("injection", "absent", "libpymon_inject.so is not built")
    text = f"CUDA_INJECTION64_PATH={library} measures programs that do not import pymon"
    cupti = _cupti()
    if cupti.state != "ok":
        return Check("injection", "absent", f"{text}; not here: {cupti.text}")
    return Check("injection", "ok", text)


def _nvml() -> Check:
    answers: list[Check] = []
    thread = threading.Thread(target=lambda: answers.append(_read_nvml()), daemon=True)
    thread.start()
    thread.join(NVML_S)
    return answers[0] if answers else Check("nvml", "broken", "NVML hangs: is a GPU lost?")


def _read_nvml() -> Check:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as err:
        return Check("nvml", "absent", f"no GPU can be read: {err}")
    return Check("nvml", "ok", f"{count} GPUs")


def _daemon() -> Check:
    if path := agent.find():
        return Check("daemon", "ok", f"answers at {path}")
    tried = []
    for path in agent.candidates():
        try:
            agent.connect(path, agent.FIND_TIMEOUT_S).close()
        except OSError as err:
            tried.append(f"{path}: {err.strerror or err}")
    text = f"none answers ({'; '.join(tried)})"
    if os.path.exists("/.dockerenv") or os.environ.get("KUBERNETES_SERVICE_HOST"):
        text += "; in a container, mount /run/pymon of the host"
    return Check("daemon", "absent", f"{text}; `pymon run` brings its own")


def _shm() -> Check:
    try:
        found = os.statvfs("/dev/shm")
    except OSError as err:
        return Check("/dev/shm", "absent", f"{err.strerror}: DataLoader workers need it")
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"{human_bytes(free)} of {human_bytes(total)} free"
    if total <= MIN_SHM_BYTES:
        text += "; too small for DataLoader workers (docker run --shm-size)"
    return Check("/dev/shm", "ok", text)


def _folders() -> Check:
    try:
        state, runtime = state_folder(), runtime_folder()
        state.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as err:
        return Check("folders", "broken", f"{err}; set XDG_STATE_HOME to a writable folder")
    return Check("folders", "ok", f"runs in {state}, sockets in {runtime}")


CHECKS: tuple[Callable[[], Check], ...] = (
    _python,
    _probe,
    _tools,
    _pth,
    _torch,
    _kineto,
    _cuda_events,
    _cupti,
    _counters,
    _injection,
    _nvml,
    _daemon,
    _shm,
    _folders,
)
