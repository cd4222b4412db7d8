"""A double of CUDA's caching allocator, as torch 2.13 shows it: what `torch.cuda.memory_stats` reads, and who asks."""

from types import SimpleNamespace

POOLS = ("all", "small_pool", "large_pool")
STATS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
    "oversize_allocations",
    "oversize_segments",
)
COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
)


class AllocatorDouble:
    """One per test. `now` holds, by device, the current values and counters that are not 0; `peaks` likewise."""

    def __init__(self, backend="native", **now):
        self.backend = backend
        self.now = {0: now}
        self.peaks = {}
        self.is_up, self.is_capturing = True, False
        self.fault = None
        self.reads = self.resets = 0
        self.uuid = "6a3f0c1e-0000-1111-2222-333344445555"
        self.name = "NVIDIA H200"

    def stats(self, device):
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        now, peaks = self.now.get(device, {}), self.peaks.get(device, {})
        told = {name: now.get(name, 0) for name in COUNTERS}
        for name in STATS:
            current = now.get(name, 0)
            values = {"current": current, "peak": max(current, peaks.get(name, 0))}
            told[name] = {pool: {**values, "allocated": 0, "freed": 0} for pool in POOLS}
        return told

    def reset(self, device):
        self.resets += 1

    def replace_in(self, torch):
        """Puts it in the place of the allocator's names of `torch`."""
        internals, cuda = torch._C, torch.cuda
        internals._cuda_memoryStats = self.stats
        internals._cuda_resetPeakMemoryStats = self.reset
        internals._cuda_resetAccumulatedMemoryStats = self.reset
        internals._cuda_getAllocatorBackend = lambda: self.backend
        internals._cuda_isCurrentStreamCapturing = lambda: self.is_capturing
        internals._cuda_hasPrimaryContext = lambda device: device in self.now
        cuda.get_device_properties = lambda device: SimpleNamespace(
            uuid=self.uuid, name=self.name, total_memory=80 << 30
        )

    def torch(self):
        """A torch with nothing but this."""
        cuda = SimpleNamespace(is_initialized=lambda: self.is_up, device_count=lambda: 8)
        torch = SimpleNamespace(
            _C=SimpleNamespace(), cuda=cuda, version=SimpleNamespace(cuda="13.0")
        )
        self.replace_in(torch)
        return torch
