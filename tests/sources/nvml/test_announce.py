import os
import time

from pymon.sources.nvml.announce import CALLS, NO_GPU, Page


def test_the_daemon_reads_what_the_worker_is_at():
    page, fd = Page.create()
    worker = Page(fd)
    os.close(fd)
    assert page.read() is None

    for gpu, function in [(NO_GPU, "nvmlInit"), (0, CALLS[-1]), (15, "nvmlDeviceGetFieldValues")]:
        began_ns = worker.begin(gpu, function)
        seen = page.read()
        assert (seen.gpu, seen.function, seen.began_mono_ns) == (gpu, function, began_ns)
        assert abs(time.monotonic_ns() - began_ns) < 1e9
    worker.end()
    assert page.read() is None


def test_the_same_call_again_is_another_announcement():
    page, fd = Page.create()
    os.close(fd)
    page.begin(1, "nvmlDeviceGetName")
    first = page.read()
    page.end()
    page.begin(1, "nvmlDeviceGetName")

    assert page.read() != first


def test_every_call_of_the_list_exists_in_nvidia_ml_py():
    import pynvml

    assert [name for name in CALLS if not hasattr(pynvml, name)] == []
