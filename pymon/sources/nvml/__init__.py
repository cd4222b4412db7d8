"""The GPUs, read through NVML in a worker process: a call into a sick driver may never return, not even for SIGKILL.

`worker` runs alone in that process and is all that calls the driver's library; `wire` is what it says, `announce` the
shared word in which it tells of each call before it makes it. The daemon's side is `pymon.daemon.nvml`.
"""
