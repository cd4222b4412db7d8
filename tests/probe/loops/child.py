"""Runs training loops watched, each in a process of its own, and writes what that process's page says.

    python -m tests.probe.loops.child MODULE LOOP [ARGUMENTS AS JSON]   one loop in this process
    python -m tests.probe.loops.child                                   one for each such line of stdin, in a fork

A fork saves importing torch each time; a child that trains opens a page of its own. Every process that calls `report`
leaves one JSON file in the folder PYMON_TEST_PAGES: its arguments, its page (empty where it is no rank), its error.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import traceback
import warnings

if os.environ.get("PYMON") == "1":
    importlib.import_module("pymon.probe.boot")  # before torch, as from the .pth

from pymon.link.page import PageReader
from pymon.probe import attach


def page(publish=True):
    """What this process's newest page says, as builtins; empty without one."""
    if publish and attach.native() is not None:
        attach.native().publish()  # as at the end of a process; a fork's child ends without
    fds = [int(fd) for fd in os.listdir("/proc/self/fd")]
    pages = [fd for fd in fds if _target(fd).startswith("/memfd:pymon-page")]
    if not pages:
        return {}
    reader = PageReader.open(max(pages))
    if reader.header.pid != os.getpid():
        return {}  # inherited: this process did not train
    said = dataclasses.asdict(reader.train())
    steps, lost = reader.steps_after(0)
    said["run"] = dataclasses.asdict(reader.run())
    said["ring"] = [dataclasses.asdict(step) for step in steps]
    said["events"] = dataclasses.asdict(reader.events())
    said["collectives"] = dataclasses.asdict(reader.collectives())
    said["memory"] = dataclasses.asdict(reader.memory())
    said["recorder"] = dataclasses.asdict(reader.recorder())
    said["event_ring"] = [dataclasses.asdict(event) for event in reader.events_after(0)]
    return {**said, "lost": lost, "attach_id": reader.header.attach_id, "pid": os.getpid()}


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def command(loop, *arguments):
    """Python's arguments that run the loop in a process of its own."""
    return ["-m", "tests.probe.loops.child", loop.__module__, loop.__name__, json.dumps(arguments)]


def report(error="", name="", **said):
    """Leaves this process's page for the test, with whatever else the loop has to say."""
    where = os.path.join(os.environ["PYMON_TEST_PAGES"], f"{name or os.getpid()}.json")
    with open(where, "w", encoding="utf-8") as file:
        json.dump(
            {**page(), "rank": os.environ.get("RANK"), **said, "error": error}, file, default=sorted
        )


def run(module, loop, arguments):
    """The loop, then its report; what it returns, a dict, goes into that."""
    error, said = "", {}
    try:
        said = getattr(importlib.import_module(module), loop)(*arguments) or {}
    except BaseException:
        error = traceback.format_exc()
    report(error, **said)
    return 1 if error else 0


def serve():
    """One line, one loop, one answer: its pid."""
    import torch

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    torch.optim.SGD([torch.zeros(1)])  # loads what the first optimizer loads
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what loops print is no answer
    for line in sys.stdin:
        module, loop, arguments = json.loads(line)
        importlib.import_module(module)  # what it needs is loaded once
        child = os.fork()
        if child == 0:
            os._exit(run(module, loop, arguments))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        print(child, file=answers, flush=True)


def main():
    warnings.simplefilter("ignore")
    if len(sys.argv) == 1:
        return serve()
    module, loop, *arguments = sys.argv[1:]
    return run(module, loop, json.loads(arguments[0]) if arguments else [])


if __name__ == "__main__":
    sys.exit(main())
