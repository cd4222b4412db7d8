"""A tree in which everything is there, and all collectors of the host on it."""

import os
from pathlib import Path

from pymon.collectors import all_collectors
from pymon.model.jobs import JobsSection
from tests.collectors.nodes import held, job_process, known, trainer
from tests.host_tree import KERNEL_THREAD, PRESSURE, HostTree, device_of
from tests.sources.test_lustre import LLITE, OSC
from tests.sources.test_nfs import NFS
from tests.sources.test_proc_devices import DISKS, INTERFACES
from tests.sources.test_shm import ROOT, line

NAMES = {
    "jobs", "host", "pressure", "shm", "cgroup", "placement", "workers", "blocked", "disk", "network", "infiniband",
    "pci", "nfs", "lustre",
}  # fmt: skip
JOB_V2 = "/system.slice/slurmstepd.scope/job_4"
JOB_V1 = "/slurm/uid_0/job_4"
LIMITS = {"memory_stat": "anon 100\nfile 700\nshmem 50", "memory_events": "oom_kill 0"}


def tree(folder, version=2, pid=70, devices=True):
    """A node on which `pid` trains with two workers in a job of Slurm's."""
    tree = HostTree(folder).node(cpus=8, cores=4)
    if devices:
        _devices(tree)
    cgroup = _cgroup_v2(tree) if version == 2 else _cgroup_v1(tree)
    tree.process(
        pid,
        children=(8001, 8002),
        uid=os.geteuid(),
        cpus="0-7",
        cgroup=cgroup,
        mountinfo=ROOT + line(device_of("/dev/shm")),
    )
    for worker in (8001, 8002):
        tree.process(worker, "pt_data_worker", parent=pid, state="D", cpus="0")
    tree.process(2, "kthreadd", parent=0, flags=KERNEL_THREAD)
    return tree


def collectors(tree, pid=70):
    """By name; what the tick before knew is that process with its probe and its GPU."""
    jobs = JobsSection((job_process(pid, gpus=((0, "GPU-0", None),)),), (), (), True)
    newest = known(trainer(pid, uid=os.geteuid()), gpus=(held(0, pid),), jobs=jobs)
    found = all_collectors(list, list, newest, tree.roots)
    return {collector.name: collector for collector in found if collector.name in NAMES}


def files(tree):
    """Every file of the tree, relative to its folder."""
    return sorted(
        str(path.relative_to(tree.folder))
        for path in Path(tree.folder).rglob("*")
        if path.is_file()
    )


def _devices(tree):
    tree.write("proc/diskstats", DISKS)
    tree.write("sys/block/sda/device/model", "x")
    tree.write("proc/1/net/dev", INTERFACES)
    tree.write("sys/class/net/eth0/device/vendor", "x")
    tree.write("sys/class/net/eth0/speed", "100000\n")
    tree.infiniband(port_rcv_data=10, port_xmit_data=20, symbol_error=1)
    for index in (0x00, 0x18, 0x19):
        tree.pci(f"0000:{index:02x}:00.0", link=(8, 16, "16.0 GT/s PCIe", "32.0 GT/s PCIe"))
    tree.write("proc/1/mountstats", NFS)
    tree.write("sys/kernel/debug/lustre/llite/fs-ff88/stats", LLITE)
    tree.write("sys/kernel/debug/lustre/osc/fs-OST0001-osc-ff88/stats", OSC)


def _cgroup_v2(tree):
    tree.cgroup_v2("/")
    tree.cgroup_v2(
        JOB_V2,
        cpu_max="400000 100000",
        cpu_stat="usage_usec 5000000\nnr_periods 9\nnr_throttled 3\nthrottled_usec 2000000",
        cpu_pressure=PRESSURE,
        memory_pressure=PRESSURE,
        io_pressure=PRESSURE,
        memory_max="1000",
        memory_current="900",
        **{"cpuset_cpus.effective": "0-7"},
        **LIMITS,
    )
    return f"0::{JOB_V2}\n"


def _cgroup_v1(tree):
    tree.cgroup_v1(
        "cpu,cpuacct",
        JOB_V1,
        cpu_cfs_quota_us="400000",
        cpu_cfs_period_us="100000",
        cpu_stat="nr_periods 9\nnr_throttled 3\nthrottled_time 2000000000",
        cpuacct_usage="5000000000",
    )
    tree.cgroup_v1(
        "memory", JOB_V1, memory_limit_in_bytes="1000", memory_usage_in_bytes="900", **LIMITS
    )
    tree.cgroup_v1("cpuset", JOB_V1, cpuset_effective_cpus="0-7")
    return f"5:memory:{JOB_V1}\n4:cpu,cpuacct:{JOB_V1}\n3:cpuset:{JOB_V1}\n"
