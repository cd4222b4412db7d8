"""The numbers that pymon asks by are those of nvidia-ml-py, which takes them from NVIDIA's header."""

import pynvml
import pytest

from pymon.sources.nvml import fields, gpm, library, slow

FIELD = "NVML_FI_DEV_"
FIELDS = {
    "POWER_AVERAGE": fields.POWER_AVERAGE,
    "POWER_INSTANT": fields.POWER_INSTANT,
    "POWER_MIN_LIMIT": fields.LIMITS["min"],
    "POWER_MAX_LIMIT": fields.LIMITS["max"],
    "POWER_DEFAULT_LIMIT": fields.LIMITS["default"],
    "POWER_CURRENT_LIMIT": fields.LIMITS["enforced"],
    "TOTAL_ENERGY_CONSUMPTION": fields.ENERGY,
    "MEMORY_TEMP": fields.MEMORY_TEMPERATURE,
    "PCIE_REPLAY_COUNTER": fields.PCIE_REPLAYS,
    "PCIE_COUNT_TX_BYTES": fields.PCIE_TRANSMIT,
    "PCIE_COUNT_RX_BYTES": fields.PCIE_RECEIVE,
    "NVLINK_LINK_COUNT": fields.NVLINK_LINKS,
    "NVLINK_THROUGHPUT_DATA_TX": fields.NVLINK_TRANSMIT_KIB,
    "NVLINK_THROUGHPUT_DATA_RX": fields.NVLINK_RECEIVE_KIB,
    "NVLINK_COUNT_XMIT_BYTES": fields.NVLINK_TRANSMIT,
    "NVLINK_COUNT_RCV_BYTES": fields.NVLINK_RECEIVE,
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": fields.NVLINK_ERRORS["crc_flit"],
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": fields.NVLINK_ERRORS["crc_data"],
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": fields.NVLINK_ERRORS["replay"],
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": fields.NVLINK_ERRORS["recovery"],
    "NVLINK_ERROR_DL_REPLAY": fields.NVLINK_LINK_ERRORS["replay"],
    "NVLINK_ERROR_DL_RECOVERY": fields.NVLINK_LINK_ERRORS["recovery"],
    "NVLINK_ERROR_DL_CRC": fields.NVLINK_LINK_ERRORS["crc"],
    "REMAPPED_COR": fields.REMAPPED["corrected"],
    "REMAPPED_UNC": fields.REMAPPED["uncorrected"],
    "REMAPPED_PENDING": fields.REMAP_PENDING,
    "REMAPPED_FAILURE": fields.REMAP_FAILURE,
    "GET_GPU_RECOVERY_ACTION": fields.RECOVERY_ACTION,
    "CLOCKS_EVENT_REASON_SW_POWER_CAP": fields.CLOCKS_EVENTS["sw_power_cap"],
    "PERF_POLICY_THERMAL": fields.CLOCKS_EVENTS["thermal"],
    "CLOCKS_EVENT_REASON_SYNC_BOOST": fields.CLOCKS_EVENTS["sync_boost"],
    "PERF_POLICY_BOARD_LIMIT": fields.CLOCKS_EVENTS["board_limit"],
    "PERF_POLICY_LOW_UTILIZATION": fields.CLOCKS_EVENTS["low_utilization"],
    "PERF_POLICY_RELIABILITY": fields.CLOCKS_EVENTS["reliability"],
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": fields.CLOCKS_EVENTS["sw_thermal"],
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": fields.CLOCKS_EVENTS["hw_thermal"],
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": fields.CLOCKS_EVENTS["hw_power_brake"],
}
REASON = "nvmlClocksEventReason"
REASONS = {
    "GpuIdle": "gpu_idle",
    "ApplicationsClocksSetting": "application_clocks",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal",
    "HwThermalSlowdown": "hw_thermal",
    "HwPowerBrakeSlowdown": "hw_power_brake",
    "DisplayClockSetting": "display_clocks",
}
METRIC = "NVML_GPM_METRIC_"
METRICS = {
    "GRAPHICS_UTIL": "graphics_active_ratio",
    "SM_UTIL": "sm_active_ratio",
    "SM_OCCUPANCY": "sm_occupancy_ratio",
    "ANY_TENSOR_UTIL": "tensor_active_ratio",
    "DRAM_BW_UTIL": "dram_active_ratio",
    "FP64_UTIL": "fp64_active_ratio",
    "FP32_UTIL": "fp32_active_ratio",
    "FP16_UTIL": "fp16_active_ratio",
}
CLOCKS = {"graphics": "GRAPHICS", "sm": "SM", "memory": "MEM", "video": "VIDEO"}


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name):
    assert FIELDS[name] == getattr(pynvml, FIELD + name)


def test_every_field_is_compared():
    names = [n for n in vars(fields) if n.isupper() and n[0] != "_" and not hasattr(library, n)]
    own = [getattr(fields, name) for name in names]
    numbers = {v for value in own for v in (value.values() if isinstance(value, dict) else [value])}
    others = {fields.ALL_LINKS, fields.RENUMBERED_FROM, fields.RENUMBERED_SINCE}

    assert numbers - others == set(FIELDS.values())


def test_reasons_clocks_locations_and_metrics():
    bits = {own: getattr(pynvml, REASON + name) for name, own in REASONS.items()}
    assert bits == slow.EVENT_BITS
    assert {
        own: getattr(pynvml, f"NVML_CLOCK_{name}") for own, name in CLOCKS.items()
    } == slow.CLOCKS
    assert {
        "dram": pynvml.NVML_MEMORY_LOCATION_DRAM,
        "sram": pynvml.NVML_MEMORY_LOCATION_SRAM,
    } == slow.LOCATIONS
    assert {
        "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    } == slow.SEVERITIES
    assert {
        "volatile": pynvml.NVML_VOLATILE_ECC,
        "aggregate": pynvml.NVML_AGGREGATE_ECC,
    } == slow.SCOPES
    metrics = {getattr(pynvml, METRIC + name): own for name, own in METRICS.items()}
    assert metrics == gpm.METRICS
    way = {"transmit": "TX", "receive": "RX"}
    assert {getattr(pynvml, f"{METRIC}PCIE_{way[own]}_PER_SEC"): own for own in way} == gpm.PCIE
