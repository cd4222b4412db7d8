"""Trees of `/proc` and `/sys` as a test wants them: what is not written is not there."""

import os
from pathlib import Path

from pymon.sources.roots import Roots

KERNEL_THREAD = 2129984  # flags of kthreadd, PF_KTHREAD among them
MEMINFO = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nBuffers: 7 kB\nCached: 300 kB\nSwapTotal: 50 kB\nSwapFree: 40 kB\nDirty: 3 kB\nWriteback: 0 kB\nShmem: 20 kB\n"  # noqa: E501
STAT = "cpu  100 10 50 800 40 0 0 0 0 0\ncpu0 50 5 25 400 20 0 0 0 0 0\ncpu1 50 5 25 400 20 0 0 0 0 0\nprocs_blocked 3\n"  # noqa: E501
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"  # noqa: E501


class HostTree:
    """Writes below one folder; `roots` is what sources are given."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.proc, self.sys = self.folder / "proc", self.folder / "sys"
        self.proc.mkdir(parents=True)
        self.sys.mkdir()

    @property
    def roots(self):
        return Roots(str(self.proc), str(self.sys))

    def write(self, path, text):
        """A file below the folder, as `proc/stat` or `sys/...`; bytes or text."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def node(self, cpus=2, cores=None):
        """What every host has: stat, meminfo, vmstat, pressure, topology of so many processors on one node."""
        self.write("proc/stat", STAT)
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/vmstat", "pswpin 5\npswpout 6\npgmajfault 70\noom_kill 1\n")
        for resource in ("cpu", "memory", "io"):
            self.write(f"proc/pressure/{resource}", PRESSURE)
        self.process(1, "systemd", parent=0)
        self.process(2, "kthreadd", parent=0, flags=KERNEL_THREAD)
        self.topology(cpus, cores or cpus)
        return self

    def topology(self, cpus, cores, nodes=None, distances=None):
        """Processors of which `cpus / cores` share a core; `nodes` are lists as `0-3`."""
        self.write("sys/devices/system/cpu/online", f"0-{cpus - 1}\n")
        for cpu in range(cpus):
            siblings = ",".join(str(other) for other in range(cpus) if other % cores == cpu % cores)
            folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
            self.write(f"{folder}/thread_siblings_list", f"{siblings}\n")
        nodes = nodes or [f"0-{cpus - 1}"]
        for number, cpulist in enumerate(nodes):
            told = (distances or [[10]])[number]
            self.write(f"sys/devices/system/node/node{number}/cpulist", f"{cpulist}\n")
            self.write(
                f"sys/devices/system/node/node{number}/distance", " ".join(map(str, told)) + "\n"
            )

    def process(
        self,
        pid,
        name="python",
        state="S",
        parent=1,
        start=1000,
        cpu_ticks=(30, 20),
        uid=0,
        cpus="0-1",
        ns_pids=None,
        cgroup="0::/\n",
        flags=4194304,
        threads=1,
        switches=(5, 5),
        arguments=("python", "train.py"),
        children=(),
        mountinfo=None,
    ):
        """/proc/PID of one process; `name` may be bytes."""
        raw = name if isinstance(name, bytes) else name.encode()
        fields = [
            parent,
            1,
            1,
            0,
            -1,
            flags,
            0,
            0,
            0,
            0,
            *cpu_ticks,
            0,
            0,
            20,
            0,
            threads,
            0,
            start,
        ]
        tail = " ".join(map(str, [*fields, 4096, 10, *[0] * 28]))
        self.write(
            f"proc/{pid}/stat", b"%d (%s) %s %s\n" % (pid, raw, state.encode(), tail.encode())
        )
        escaped = raw.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")  # as the kernel does
        inner = "\t".join(map(str, ns_pids or (pid,)))
        self.write(
            f"proc/{pid}/status",
            b"Name:\t%s\n" % escaped
            + f"Umask:\t0022\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{inner}\n"
            f"Threads:\t{threads}\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
            f"voluntary_ctxt_switches:\t{switches[0]}\nnonvoluntary_ctxt_switches:\t{switches[1]}\n".encode(),
        )
        self.write(f"proc/{pid}/cgroup", cgroup)
        self.write(f"proc/{pid}/cmdline", "\0".join(arguments) + "\0")
        self.write(f"proc/{pid}/limits", f"{'Max open files':26}{1024:<21}{4096:<21}files\n")
        self.write(f"proc/{pid}/task/{pid}/children", "".join(f"{child} " for child in children))
        for fd in range(3):
            self.write(f"proc/{pid}/fd/{fd}", "")
        if mountinfo is not None:
            self.write(f"proc/{pid}/mountinfo", mountinfo)
        return pid

    def end(self, pid):
        """The process is gone."""
        for path in sorted((self.proc / str(pid)).rglob("*"), reverse=True):
            path.unlink() if not path.is_dir() else path.rmdir()
        (self.proc / str(pid)).rmdir()

    def cgroup_v2(self, path, **files):
        """A group of version 2; `cpu_max="max 100000"` is the file cpu.max."""
        self.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
        base = f"sys/fs/cgroup{path.rstrip('/')}"
        if path != "/":
            self.write(f"{base}/cgroup.events", "populated 1\nfrozen 0\n")
        self._group(base, files)

    def cgroup_v1(self, controller, path, **files):
        """A group of one controller of version 1."""
        base = f"sys/fs/cgroup/{controller}"
        self.write(f"{base}/release_agent", "\n")
        self._group(base + path.rstrip("/"), files)

    def _group(self, base, files):
        self.folder.joinpath(base).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            self.write(f"{base}/{name.replace('_', '.', 1)}", f"{text}\n")

    def pci(
        self,
        address,
        kind="0302",
        vendor="0x10de",
        node=0,
        link=(16, 16, "32.0 GT/s PCIe", "32.0 GT/s PCIe"),
    ):
        """A PCI device; `link` None: it has none."""
        base = f"sys/bus/pci/devices/{address}"
        self.write(f"{base}/class", f"0x{kind}00\n")
        self.write(f"{base}/vendor", f"{vendor}\n")
        self.write(f"{base}/numa_node", f"{node}\n")
        if link is not None:
            names = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
            for name, value in zip(names, link, strict=True):
                self.write(f"{base}/{name}", f"{value}\n")

    def infiniband(
        self, device="mlx5_0", port="1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", **counters
    ):
        """A port; a counter whose name begins with `hw_` lies in hw_counters."""
        base = f"sys/class/infiniband/{device}/ports/{port}"
        self.write(f"{base}/state", f"{state}\n")
        self.write(f"{base}/rate", f"{rate}\n")
        for name, value in counters.items():
            folder = "hw_counters" if name.startswith("hw_") else "counters"
            self.write(f"{base}/{folder}/{name.removeprefix('hw_')}", f"{value}\n")


def device_of(path):
    """MAJOR:MINOR of the file system that a path is on, as mountinfo writes it."""
    device = os.stat(path).st_dev
    return f"{os.major(device)}:{os.minor(device)}"
