"""A double of the `pynvml` module: GPUs that answer, lack a reading, or are lost."""

from types import SimpleNamespace


class NVMLError(Exception):
    pass


class NvmlDouble:
    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus, driver=True):
        self.gpus, self.driver = gpus, driver

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        if self.gpus[index] == "lost":
            raise NVMLError("GPU is lost")
        return self.gpus[index]

    def _read(self, gpu, key):
        if key not in gpu:
            raise NVMLError("Not Supported")
        return gpu[key]

    def nvmlDeviceGetUUID(self, gpu):
        return gpu["uuid"].encode()

    def nvmlDeviceGetName(self, gpu):
        return gpu["name"]

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(total=self._read(gpu, "total"), used=self._read(gpu, "used"))

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return SimpleNamespace(gpu=self._read(gpu, "utilization"))

    def nvmlDeviceGetPowerUsage(self, gpu):
        return self._read(gpu, "power_mw")

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return self._read(gpu, "heat")


WHOLE = {
    "uuid": "GPU-1",
    "name": "H200",
    "total": 100,
    "used": 40,
    "utilization": 75,
    "power_mw": 350_000,
    "heat": 61,
}
BARE = {"uuid": "GPU-2", "name": "A100"}
