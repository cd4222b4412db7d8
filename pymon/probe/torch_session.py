"""One session of torch.profiler: started, stopped and exported in the training thread, and nowhere
else.
"""

from __future__ import annotations

import os
from typing import Any

from pymon.probe.profiler_registry import ProfilerRegistry

# Kineto's level that silences the two lines torch 2.13 writes on stderr for each session; 5 does
# not.
_SILENT = "6"


class TorchSession:
    """`with_gpu` False leaves CUPTI alone, which is what a sizing step wants.

    `acc_events` stays off: with it torch parses every event in Python at the stop, a minute for
    half a million.
    """

    def __init__(self, registry: ProfilerRegistry, with_gpu: bool, with_stack: bool) -> None:
        import torch
        from torch.profiler import ProfilerActivity

        activities = [ProfilerActivity.CPU]
        if with_gpu:
            activities.append(ProfilerActivity.CUDA)
        self._registry = registry
        self._profile: Any = torch.profiler._KinetoProfile(
            activities=activities, with_stack=with_stack
        )
        self._range: Any = None

    def start(self) -> None:
        """Begins to record this thread; raises what torch raises."""
        silenced = "KINETO_LOG_LEVEL" not in os.environ
        if silenced:
            os.environ["KINETO_LOG_LEVEL"] = _SILENT
        try:
            with self._registry.ours():
                self._profile.start()
        finally:
            if silenced:
                os.environ.pop("KINETO_LOG_LEVEL", None)

    def begin_step(self, step: int) -> None:
        """Ends the open `ProfilerStep#` range, if any, and opens the one of `step`."""
        from torch.autograd.profiler import record_function

        self.end_step()
        self._range = record_function(f"ProfilerStep#{step}")
        self._range.__enter__()

    def end_step(self) -> None:
        """Ends the open range."""
        ended, self._range = self._range, None
        if ended is not None:
            ended.__exit__(None, None, None)

    def stop(self) -> None:
        """Ends the recording; about 8 µs an event. The range that is open is cut at its end."""
        self.end_step()
        self._profile.stop()

    def events(self) -> int:
        """How many events the stopped session holds.

        About 0.5 µs each, unlike the parsing `events()`.
        """
        return len(self._profile.profiler.kineto_results.events())

    def export(self, path: str) -> None:
        """Writes the trace.

        About 3 µs and 0.26 kB an event. Raises OSError where the file is not whole.
        """
        self._profile.export_chrome_trace(path)
        with open(path, "rb") as file:  # Kineto says nothing about a full disk
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64))
            if not file.read().rstrip().endswith(b"}"):
                raise OSError("the trace was cut short while it was written (disk full?)")


def gpu_in_use() -> bool:
    """Whether this process has CUDA up; asking costs nothing and starts nothing."""
    import torch

    return bool(torch.cuda.is_initialized())
