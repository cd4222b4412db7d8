from dataclasses import replace

from pymon.model.counters import CounterBurst
from pymon.reports.counters import lines

BURST = CounterBurst(
    pid=7,
    device="NVIDIA H200",
    chip="GH100",
    duration_s=2.0,
    samples_total=4000,
    samples_lost=0,
    overflows=0,
    sm_active_ratio=0.8,
    dram_bytes_per_s=2.0 * 1024**4,
    sm_clock_hz=1.5e9,
    sm_clock_before_hz=1.98e9,
)


def test_a_burst_tells_its_metrics_and_what_the_clocks_did():
    told = lines(BURST)

    assert told[0] == "pid 7: NVIDIA H200 (GH100), whole GPU, 2 s, 4,000 samples"
    assert "  SM active           80.0 %" in told
    assert "  DRAM                2.0 TiB/s" in told
    assert "  NVLink sent         not counted by this chip" in told
    assert "  SM clock            before 1,980 MHz, in the burst 1,500 MHz, after unknown" in told
    assert "clocks are locked while counters run" in told[-1]


def test_what_was_lost_is_told():
    told = lines(replace(BURST, samples_lost=1234, overflows=2))

    assert told[-1] == "  1,234 samples lost; the buffer on the GPU ran full 2 times"
