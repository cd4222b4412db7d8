"""Whole daemons on trees of /proc and /sys, on this machine, and without rights."""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from shutil import which

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pymon.cli.child_env import training_environment
from tests.collectors import whole
from tests.daemon import pages
from tests.host_tree import KERNEL_THREAD, HostTree
from tests.integration.node import Node, Samples
from tests.nvml_double import STATE, NodeDouble, standard_node, uuid_of
from tests.waiting import until

USER = 65534
ATTACHED = Path(__file__).with_name("attached.py")
LOADING = Path(__file__).with_name("loading.py")
STUCK = Path(__file__).with_name("stuck_daemon.py")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start for other users")


class Watched(Node):
    """A node whose page is read as samples: family and label values without `uuid` -> value."""

    def text(self):
        try:
            with urllib.request.urlopen(f"{self.http}/metrics", timeout=5) as page:
                return page.read().decode()
        except urllib.error.HTTPError:
            return ""  # before the first tick

    def samples(self):
        found = {
            (sample.name, *(v for k, v in sample.labels.items() if k != "uuid")): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }
        return Samples(found, self.samples)

    def until(self, *wanted, timeout_s=60):
        """The samples, as soon as this one is among them."""

        def found():
            samples = self.samples()
            return samples if wanted in samples else None

        return until(found, timeout_s, f"{wanted}")

    def connect(self, **facts):
        """A trainer that is this process."""
        return pages.trainer(self.socket, **facts)


@pytest.fixture
def node(tmp_path):
    node = Watched(tmp_path)
    yield node
    node.end()


@pytest.mark.parametrize("version", [1, 2])
def test_a_whole_daemon_on_trees_of_both_versions(node, tmp_path, monkeypatch, version):
    tree = whole.tree(tmp_path / "host", version, os.getpid())
    state = standard_node()
    state["gpus"][0]["processes"] = [
        {"pid": os.getpid(), "bytes": 1 << 30},
        {"pid": 9999, "bytes": 1},
    ]
    state["gpus"][1]["processes"] = []
    double = NodeDouble(tmp_path, state)
    monkeypatch.setenv(STATE, str(double.path))
    config = tmp_path / "pymon.toml"
    config.write_text(f'[host]\nproc = "{tree.proc}"\nsys = "{tree.sys}"\n')
    node.daemon(
        "--http", "127.0.0.1:0", "--config", str(config), "--nvml-library", str(double.library)
    )
    sock = node.connect(rank=3, job_id="4")
    who = ("3", "4", str(os.getpid()))

    samples = node.until("pymon_process_gpu_numa_distance", "nearest", "0", *who)
    assert samples[("pymon_process_usable_cpus", *who)] == 4
    assert samples[("pymon_process_affinity_cpus", *who)] == 8
    assert samples[("pymon_process_affinity_cores", *who)] == 4
    assert samples["pymon_host_cores",] == 4
    assert samples[("pymon_loader_workers", "uninterruptible", *who)] == 2
    assert samples[("pymon_loader_workers_usable_cpus", *who)] == 1
    assert samples["pymon_cgroup_cpu_quota_cpus", "job_4"] == 4
    assert samples["pymon_cgroup_cpu_throttled_seconds_total", "job_4"] == 2
    assert samples["pymon_cgroup_cpu_seconds_total", "job_4"] == 5
    assert samples["pymon_cgroup_memory_limit_bytes", "job_4"] == 1000
    assert samples["pymon_cgroup_memory_used_bytes", "job_4"] == 900
    assert samples[("pymon_process_shm_total_bytes", *who)] == samples["pymon_shm_total_bytes",]
    assert samples["pymon_gpu_holders", "0", "attached"] == 1
    assert samples["pymon_disk_read_bytes_total", "sda"] == 2000 * 512
    assert samples["pymon_network_receive_bytes_total", "eth0"] == 100
    assert samples["pymon_infiniband_transmit_bytes_total", "mlx5_0", "1"] == 80
    assert samples["pymon_pci_link_width", "0000:18:00.0", "gpu"] == 8
    assert samples["pymon_nfs_requests_total", "fs1:/data", "read"] == 1298
    assert samples["pymon_lustre_operation_seconds_total", "fs", "llite", "read"] == 2.5
    assert samples["pymon_host_pressure_waiting_seconds_total", "io"] == 2.5
    assert samples["pymon_host_oom_kills_total",] == 1
    info = f'pymon_job_info{{gpu="0",uuid="{uuid_of(0)}",gpu_instance_id="",rank="3",job_id="4",pid="{who[2]}"'
    until(lambda: info in node.text(), what=info)
    sock.close()
    if which("promtool"):
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=node.text(), text=True, capture_output=True
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_an_empty_host_costs_only_what_it_has_not(node, tmp_path):
    tree = HostTree(tmp_path / "host")
    config = tmp_path / "pymon.toml"
    config.write_text(f'[host]\nproc = "{tree.proc}"\nsys = "{tree.sys}"\n')
    node.daemon("--http", "127.0.0.1:0", "--config", str(config))

    def are_told(samples, state, *names):
        return all(samples.get(("pymon_collector_up", name, state)) == 1 for name in names)

    absent = ("host", "pressure", "disk", "network", "infiniband", "pci", "nfs", "lustre")
    samples = until(
        lambda: are_told(s := node.samples(), "absent", *absent) and are_told(s, "ok", "shm") and s,
        what="all collectors",
    )
    assert not [key for key in samples if key[0].startswith(("pymon_host_", "pymon_disk_"))]


def test_families_and_collectors_that_are_switched_off(node, tmp_path):
    config = tmp_path / "pymon.toml"
    config.write_text(
        '[prometheus]\ndisabled = ["pymon_host_memory_*", "pymon_shm_used_bytes"]\n'
        '[collectors]\ndisabled = ["disk", "jobs"]\n'
    )
    node.daemon("--http", "127.0.0.1:0", "--config", str(config))

    samples = node.until("pymon_shm_total_bytes")
    names = {key[0] for key in samples}
    assert "pymon_host_cpus" in names
    assert not [name for name in names if name.startswith(("pymon_host_memory_", "pymon_disk_"))]
    assert "pymon_shm_used_bytes" not in names
    assert not [key for key in samples if key[1:2] == ("disk",)]


def test_loader_workers_of_a_real_training(node):
    pytest.importorskip("torch", reason="torch is not installed")
    node.daemon("--http", "127.0.0.1:0")
    env = training_environment(os.environ, "test", node.socket)
    process = node.start([sys.executable, str(LOADING), "2"], env)
    who = ("", "", str(process.pid))

    def workers():
        return sum(
            value
            for key, value in node.samples().items()
            if key[0] == "pymon_loader_workers" and key[2:] == who
        )

    until(lambda: workers() == 2, 90, "both workers")
    samples = node.samples()
    assert samples[("pymon_loader_workers_usable_cpus", *who)] == len(os.sched_getaffinity(0))
    assert samples[("pymon_loader_workers_open_fds", *who)] > 6
    assert samples[("pymon_process_cpu_seconds_total", *who)] > 0
    assert samples[("pymon_process_shm_total_bytes", *who)] == samples["pymon_shm_total_bytes",]


@pytest.fixture
def open_node():
    """A node below a folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="pymon"))
    folder.chmod(0o777)
    node = Watched(folder)
    yield node
    node.end()
    shutil.rmtree(folder)


def own_shm(command):
    """The command in a mount namespace with a /dev/shm of 16 MiB, 4 of them used."""
    mount = "mount -t tmpfs -o size=16m pymon /dev/shm && head -c 4194304 /dev/zero > /dev/shm/x"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


def as_user(user, command):
    """The command as that user, who may read every file, this Python's among them, and trace no process."""
    if user == 0:
        return command
    caps = [f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *caps, *command]


@root_only
@pytest.mark.skipif(
    which("unshare") is None or which("setpriv") is None,
    reason="unshare or setpriv is not installed (Debian package util-linux)",
)
@pytest.mark.parametrize("user", [0, USER])
def test_the_shm_of_a_container_with_and_without_rights(open_node, user):
    command = [sys.executable, "-m", "pymon", "daemon", "--no-kineto", "--http", "127.0.0.1:0"]
    command += ["--socket", str(open_node.socket), "--state-dir", str(open_node.folder / "state")]
    ready = open_node.start(as_user(user, command)).stdout.readline()
    open_node.http = ready.split("http=")[1].strip()
    trainer = open_node.start(own_shm([sys.executable, str(ATTACHED), str(open_node.socket)]))
    assert trainer.stdout.readline() == "attached\n"
    who = ("0", "j", str(trainer.pid))

    samples = open_node.until("pymon_process_shm_total_bytes", *who)
    assert samples[("pymon_process_shm_total_bytes", *who)] == 16 * 1024**2
    if user == 0:
        assert samples[("pymon_process_shm_used_bytes", *who)] == 4 * 1024**2
        assert ("pymon_readings_absent", "shm", "shm", "no_permission") not in samples
    else:
        assert ("pymon_process_shm_used_bytes", *who) not in samples
        assert samples["pymon_readings_absent", "shm", "shm", "no_permission"] == 1
    for told_to_anyone in ("pymon_process_affinity_cpus", "pymon_process_open_fds"):
        open_node.until(told_to_anyone, *who)


IN_A_CONTAINER = (
    'mkdir -p "$1" && mount --bind /proc "$1" && mount -t proc proc /proc && shift && exec "$@"'
)


@root_only
@pytest.mark.skipif(which("unshare") is None, reason="unshare is not installed")
@pytest.mark.parametrize("given", [True, False])
def test_a_daemon_in_a_pid_namespace_of_its_own_with_and_without_the_hosts_proc(open_node, given):
    host_proc = open_node.folder / "proc"
    config = open_node.folder / "pymon.toml"
    config.write_text(f'[host]\nproc = "{host_proc}"\n' if given else "")
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        IN_A_CONTAINER,
        "sh",
        str(host_proc),
    ]
    command += [
        sys.executable,
        "-m",
        "pymon",
        "daemon",
        "--no-kineto",
        "--http",
        "127.0.0.1:0",
        "--config",
        str(config),
    ]
    command += ["--socket", str(open_node.socket), "--state-dir", str(open_node.folder / "state")]
    ready = open_node.start(command).stdout.readline()
    open_node.http = ready.split("http=")[1].strip()
    trainer = open_node.start([sys.executable, str(ATTACHED), str(open_node.socket)])
    assert trainer.stdout.readline() == "attached\n"
    who = ("0", "j", str(trainer.pid))

    if given:
        samples = open_node.until("pymon_process_affinity_cpus", *who)
        assert ("pymon_readings_absent", "jobs", "process", "out_of_sight") not in samples
    else:
        samples = open_node.until("pymon_readings_absent", "jobs", "process", "out_of_sight")
        assert samples["pymon_readings_absent", "jobs", "process", "out_of_sight"] == 1
        assert ("pymon_process_affinity_cpus", *who) not in samples


@pytest.fixture
def half_a_processor():
    """The file that takes processes into a group of this machine with half a processor."""
    base = Path("/sys/fs/cgroup")
    second = (base / "cgroup.controllers").exists()
    folder = base / ("" if second else "cpu") / f"pymon-test-{os.getpid()}"
    try:
        folder.mkdir()
        if second:
            (folder / "cpu.max").write_text("50000 100000")
        else:
            (folder / "cpu.cfs_quota_us").write_text("50000")
    except OSError as err:
        pytest.skip(f"no control group of processor time can be made here: {err}")
    yield folder / "cgroup.procs"
    until(lambda: _removed(folder), what="the group's end")


def _removed(folder):
    try:
        folder.rmdir()
    except OSError:  # its processes are still ending
        return False
    return True


def test_a_real_quota_and_its_throttling(half_a_processor, node):
    pytest.importorskip("torch", reason="torch is not installed")
    node.daemon("--http", "127.0.0.1:0")
    env = training_environment(os.environ, "test", node.socket)
    enter = ["sh", "-c", f'echo $$ > {half_a_processor} && exec "$@"', "sh"]
    process = node.start([*enter, sys.executable, str(LOADING), "2"], env)

    samples = node.until("pymon_process_usable_cpus", "", "", str(process.pid), timeout_s=90)
    assert samples["pymon_process_usable_cpus", "", "", str(process.pid)] == 0.5

    def of_group(
        family,
    ):  # named after the group of another controller where this machine has version 1
        return [
            value for key, value in node.samples().items() if key[0] == f"pymon_cgroup_{family}"
        ]

    until(lambda: of_group("cpu_quota_cpus") == [0.5], what="the group")
    for counted in ("cpu_throttled_periods_total", "cpu_throttled_seconds_total"):
        until(lambda family=counted: any(v > 0 for v in of_group(family)), what=counted)


def test_a_tick_goes_on_while_a_reading_hangs(node, tmp_path):
    """A pipe in the place of a file: opening it for reading would wait for ever without care."""
    tree = HostTree(tmp_path / "host").node()
    (tree.proc / "diskstats").unlink(missing_ok=True)
    os.mkfifo(tree.proc / "diskstats")
    config = tmp_path / "pymon.toml"
    config.write_text(f'[host]\nproc = "{tree.proc}"\nsys = "{tree.sys}"\n')
    node.daemon("--http", "127.0.0.1:0", "--config", str(config))

    assert node.until("pymon_collector_up", "disk", "absent")["pymon_host_cpus",] == 2
    assert tree.process(2, "kthreadd", flags=KERNEL_THREAD) == 2


def test_a_reading_that_never_returns_is_late_and_holds_up_neither_the_others_nor_the_end(node):
    daemon = node.daemon("--http", "127.0.0.1:0", program=[str(STUCK)])
    node.until("pymon_shm_total_bytes")
    until(
        lambda: node.samples().get(("pymon_collector_up", "host", "late")) == 1,
        what="the late collector",
    )
    assert "pymon_host_cpus" not in node.text()
    daemon.terminate()

    assert daemon.wait(5) == 0
