import os
import socket
import time

import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.xid import XidCollector
from pymon.sources.kmsg import KernelLog

OLD_GPU, GPU = "00000000:03:00.0", "00000000:3B:00.0"


@pytest.fixture
def log():
    """A log whose records come one a read, as the kernel gives them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    collector = XidCollector(KernelLog.from_fd(theirs.fileno()))

    def write(*lines, priority=4, at_s=None):
        at_us = int((time.monotonic() if at_s is None else at_s) * 1e6)
        for line in lines:
            ours.send(f"{priority},123,{at_us},-;{line}\n SUBSYSTEM=pci\n".encode())
        return {(pci, c.xid): c.events_total for pci, c in collector.collect().events}

    write.collector = collector
    yield write
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("line", "gpu", "xid"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", GPU, 79),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=2, name=python, Ch 00000008, MMU Fault", GPU, 31),
        ("NVRM: Xid (0000:03:00): 13, Graphics Exception", OLD_GPU, 13),
        ("NVRM: Xid (PCI:0000:3b:00): 99999, something new", GPU, 99999),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", GPU, 79),
        ("[42.1] NVRM: Xid (PCI:0000:3B:00): 48, DBE", GPU, 48),
    ],
)  # fmt: skip
def test_every_way_in_which_the_driver_tells_of_an_xid(log, line, gpu, xid):
    assert log(line) == {(gpu, xid): 1}
    assert log() == {(gpu, xid): 1}
    (_, count) = log.collector.collect().events[0]
    assert count.last_real_s == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.126.09",
        "NVRM: Xid (PCI:0000:3b:00): no number",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "",
    ],
)
def test_other_lines_are_none(log, line):
    assert log(line) == {}


def test_errors_of_an_nvswitch_are_told_by_code_and_severity_and_are_no_gpus(log):
    """Lines with the data of an error follow it, and are none of their own."""
    first = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)"
    data = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00"
    fatal = (
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11001, Fatal, Link 60 ingress invalid command"
    )
    garbled = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): garbled, Fatal"
    assert log(first, data, fatal, garbled, first, at_s=100) == {}

    section = log.collector.collect()
    told = [(s.pci_bus_id, s.sxid, s.severity, s.events_total) for s in section.switch_events]
    assert told == [
        ("00000000:C1:00.0", 28006, "non_fatal", 2),
        ("00000000:05:00.0", 11001, "fatal", 1),
    ]


def test_two_lines_of_one_fall_count_once_and_other_codes_each_time(log):
    fall = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    log(fall, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", at_s=100)
    assert log(fall, at_s=500) == {(GPU, 79): 2}
    line = "NVRM: Xid (PCI:0000:3b:00): 31, MMU Fault"
    assert log(line, line, line)[GPU, 31] == 3


def test_what_a_process_wrote_into_the_log_is_not_believed(log):
    assert log("NVRM: Xid (PCI:0000:3b:00): 79, forged", priority=12) == {}


def test_records_that_are_no_records_are_passed_over(log):
    assert log("NVRM: Xid (PCI:0000:3b:00): 31", priority="x") == {}


def test_without_the_right_or_the_file_it_is_absent_with_the_reason(tmp_path):
    with pytest.raises(SourceAbsent, match="No such file"):
        XidCollector(KernelLog(tmp_path / "none")).collect()
    if os.geteuid() != 0:
        (tmp_path / "kmsg").touch(0o000)
        with pytest.raises(SourceAbsent, match="CAP_SYSLOG"):
            XidCollector(KernelLog(tmp_path / "kmsg")).collect()
