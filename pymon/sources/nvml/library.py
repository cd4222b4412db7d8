"""The driver's library, through nvidia-ml-py: each call announced and timed, each error says what to do."""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pynvml

from pymon.sources.nvml.announce import NO_GPU, Page

NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
UNKNOWN: Final = 999
# After these nothing answers any more before the library is loaded anew: uninitialised, the driver is not loaded, the
# library is of another version than the driver.
AWAY: Final = frozenset({1, 9, VERSION_MISMATCH})
# The GPU is there no more, or only after a reset.
GONE: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
# It will not answer this another time either: invalid argument, not supported, not found, no such function, another
# version of the argument, deprecated. A driver may write a kernel warning each time (nvidia_gpu_exporter#384).
NEVER: Final = frozenset({2, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, 25, 26})


class CallFailed(Exception):
    """A call answered with an error."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {error_text(code)} ({code})")
        self.function, self.code = function, code


class DriverAway(CallFailed):
    """The driver is gone for all GPUs."""


class GpuGone(CallFailed):
    """The GPU is lost or waits for a reset."""


def error_text(code: int) -> str:
    """NVML's own words."""
    return str(pynvml.NVMLError(code))


class Library:
    """Calls by name. Counts what they took and how they failed; `take_counts` gives and clears that."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._spent_ns = self._calls = 0
        self._errors: Counter[tuple[str, int]] = Counter()

    def call(self, gpu: int, function: str, *arguments: Any, ok: int = 0) -> Any:
        """What nvidia-ml-py gives. Raises DriverAway, GpuGone, or CallFailed for all other errors but `ok`."""
        work = getattr(pynvml, function, None)
        if work is None:  # an older nvidia-ml-py
            raise self.failure(function, FUNCTION_NOT_FOUND)
        return self.call_as(gpu, function, work, *arguments, ok=ok)

    def call_as(
        self, gpu: int, function: str, work: Callable[..., Any], *arguments: Any, ok: int = 0
    ) -> Any:
        """As `call`, for work that is no plain function of nvidia-ml-py. The code `ok` gives None."""
        began_ns = self._page.begin(gpu, function)
        try:
            return work(*arguments)
        except pynvml.NVMLError as err:
            if err.value in (0, ok):  # 0: nvidia-ml-py raises "success" where there are no samples
                return None
            raise self.failure(function, err.value) from None
        except (
            UnicodeDecodeError
        ):  # a driver's string that is no text: nvidia-ml-py insists on UTF-8
            raise self.failure(function, UNKNOWN) from None
        finally:
            self._spent_ns += time.monotonic_ns() - began_ns
            self._calls += 1
            self._page.end()

    def failure(self, function: str, code: int) -> CallFailed:
        """Counts an error that a call, or a part of its answer, carried."""
        self._errors[function, code] += 1
        if code in AWAY:
            return DriverAway(function, code)
        return (GpuGone if code in GONE else CallFailed)(function, code)

    def take_counts(self) -> tuple[int, int, tuple[tuple[str, int, int], ...]]:
        """Nanoseconds, calls and errors since the last time."""
        errors = tuple((function, code, n) for (function, code), n in self._errors.items())
        counts = self._spent_ns, self._calls, errors
        self._spent_ns = self._calls = 0
        self._errors.clear()
        return counts


def load(path: str) -> None:
    """Makes nvidia-ml-py find this file instead of the driver's library: it asks the loader for that name only."""
    if path:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def is_double() -> bool:
    """Whether the library is a test's double."""
    try:
        return hasattr(ctypes.CDLL("libnvidia-ml.so.1"), "pymon_nvml_double")
    except OSError:
        return False


def start(library: Library) -> tuple[str, str, str, int]:
    """Driver, library and CUDA version and the number of GPUs. Raises CallFailed where the library does not come up."""
    library.call(NO_GPU, "nvmlInit")
    cuda = _or(library, 0, "nvmlSystemGetCudaDriverVersion")
    return (
        str(_or(library, "", "nvmlSystemGetDriverVersion")),
        str(_or(library, "", "nvmlSystemGetNVMLVersion")),
        f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        int(library.call(NO_GPU, "nvmlDeviceGetCount")),
    )


def _or(library: Library, instead: Any, function: str) -> Any:
    try:
        return library.call(NO_GPU, function)
    except CallFailed as err:
        if isinstance(err, DriverAway):
            raise
        return instead
