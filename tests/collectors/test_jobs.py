from dataclasses import replace

import pytest

from pymon.collectors import jobs as module
from pymon.collectors.jobs import GONE_S, JobsCollector
from pymon.collectors.looks import LOOK_S
from pymon.model.gpu import GpuActivity, GpuState, MigInstance
from pymon.model.jobs import Manager, Owner
from pymon.sources.process import Processes
from tests.clock_double import ClockDouble
from tests.collectors.nodes import held, known, trainer, whys
from tests.exporters.gpus import gpu
from tests.host_tree import KERNEL_THREAD, HostTree

SLURM = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_{}\n"
USERS = {1000: "ann", 1001: "bob"}


class Node:
    """A tree, a clock, and what the tick before knew."""

    def __init__(self, folder):
        self.tree = HostTree(folder)
        self.tree.process(2, "kthreadd", flags=KERNEL_THREAD)
        self.newest = known()
        self.clock = ClockDouble()
        self.asked = []
        self.jobs = JobsCollector(
            Processes(self.tree.roots.proc), self.asked_for, self.clock, self.user_name
        )

    def asked_for(self):
        return self.newest()

    def user_name(self, uid):
        self.asked.append(uid)
        return USERS.get(uid, str(uid))

    def look(self, after_s=1.0):
        self.clock.now_s += after_s
        return self.jobs.collect()


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def owners(section):
    return {(one.gpu, one.pid): one.owner for one in section.holdings}


def test_gpu_process_rank_and_job(node):
    for rank, pid in enumerate((70, 71)):
        node.tree.process(pid, uid=1000, start=rank, cgroup=SLURM.format(rank))
    trainers = (trainer(70, rank=4, job_id="42"), trainer(71, rank=5, job_id=""))
    node.newest = known(*trainers, gpus=(held(0, 70), held(1, 71)))

    first, second = node.look().processes
    assert (first.pid, first.rank, first.job_id, first.user) == (70, 4, "42", "ann")
    assert first.gpus == ((0, "GPU-0", None),)
    assert first.identity.manager is Manager.SLURM
    assert (first.identity.slurm_job, first.identity.slurm_step) == ("42", "0")
    assert (second.rank, second.job_id, second.label_job_id) == (5, "42", "")  # by its group
    assert owners(node.look()) == {(0, 70): Owner.ATTACHED, (1, 71): Owner.ATTACHED}


def test_a_process_without_a_probe_is_counted_and_belongs_to_its_job(node):
    node.tree.process(80, uid=1001, cgroup=SLURM.format(0))
    node.newest = known(gpus=(held(0, 80),))

    section = node.look()
    (one,) = section.processes
    assert owners(section) == {(0, 80): Owner.UNATTACHED}
    assert (one.rank, one.job_id, one.user, one.attach_id) == (None, "42", "bob", "")


def test_a_gpu_held_by_nobody_who_lives_is_told_after_a_while(node):
    node.tree.process(81, state="Z")
    node.newest = known(gpus=(held(0, 80, 81),))
    assert owners(node.look()) == {}  # it may have ended just now, and the list be old

    section = node.look(after_s=GONE_S + 1)
    assert owners(section) == {(0, 80): Owner.GONE, (0, 81): Owner.GONE}
    assert section.processes == ()


def test_one_that_ends_and_is_let_go_was_never_an_orphan(node):
    node.tree.process(80)
    node.newest = known(gpus=(held(0, 80),))
    assert owners(node.look()) == {(0, 80): Owner.UNATTACHED}

    node.tree.end(80)
    assert owners(node.look(after_s=LOOK_S)) == {}
    node.newest = known(gpus=(held(0),))
    assert owners(node.look(after_s=GONE_S + 1)) == {}


def test_whose_a_gpu_is_stays_known_while_it_hangs(node):
    node.tree.process(70, uid=1000)
    node.tree.process(80, uid=1001)
    node.newest = known(trainer(70), gpus=(held(0, 70, 80),))
    node.look()

    hung = gpu(0, GpuState.HUNG, fast=None)
    node.newest = known(trainer(70), gpus=(hung,))
    assert owners(node.look()) == {(0, 70): Owner.ATTACHED, (0, 80): Owner.UNATTACHED}
    node.tree.end(80)  # an old list tells of no orphans
    section = node.look(after_s=LOOK_S)
    section = node.look(after_s=GONE_S + 1)
    assert owners(section) == {(0, 70): Owner.ATTACHED}
    assert section.processes[0].gpus == ((0, "GPU-0", None),)


def test_without_the_hosts_pids_nothing_is_guessed(node):
    node.tree.process(2, "sh")  # a container's process 2
    node.tree.process(80, uid=1000)  # an unrelated process of that number
    node.newest = known(gpus=(held(0, 80),))

    section = node.look()
    assert not section.host_pids
    assert owners(section) == {(0, 80): Owner.UNKNOWN}
    assert section.processes == ()


def test_a_trainer_in_a_namespace_of_its_own_is_found_by_its_number_there(node):
    node.tree.process(5000, uid=1000, ns_pids=(5000, 7), cgroup=SLURM.format(0))
    node.tree.process(5001, uid=1001, ns_pids=(5001, 7))  # another user's
    node.newest = known(trainer(7, host_pid=None, rank=3), gpus=(held(0, 5000),))

    (one,) = node.look().processes
    assert (one.pid, one.label_pid, one.rank, one.gpus) == (5000, 7, 3, ((0, "GPU-0", None),))


def test_two_that_could_be_it_are_none(node):
    for pid in (5000, 5001):
        node.tree.process(pid, uid=1000, ns_pids=(pid, 7))
    node.newest = known(trainer(7, host_pid=None), gpus=(held(0, 5000),))

    section = node.look()
    assert owners(section) == {(0, 5000): Owner.UNATTACHED}
    assert [one.attach_id for one in section.processes] == [""]
    assert whys(section) == {("process", "out_of_sight"): 1}


def test_a_proc_that_is_the_hosts_and_not_the_daemons_own(node):
    (node.tree.proc / "self").symlink_to("999999")
    node.tree.process(7, uid=1000, start=5)  # the host's own process of that number
    node.tree.process(5000, uid=1000, ns_pids=(5000, 7))
    node.newest = known(trainer(7, host_pid=7))

    section = node.look()
    assert section.processes == ()  # 7 itself and 5000 both fit: nothing is guessed

    node.tree.end(7)
    (one,) = node.look(after_s=31).processes
    assert one.pid == 5000


def test_a_pid_that_belongs_to_another_user_by_now_is_not_the_trainer(node):
    node.tree.process(70, uid=1001)
    node.newest = known(trainer(70))

    section = node.look()
    assert section.processes == ()
    assert whys(section)["process", "out_of_sight"] == 1


def test_time_that_gpus_were_held_and_idle_by_user_and_job(node):
    node.tree.process(70, uid=1000, cgroup=SLURM.format(0))
    node.newest = known(trainer(70, job_id="42"), gpus=(held(0, 70), held(1, 70, use=0.0)))
    for _ in range(11):
        section = node.look()
    late_s = node.jobs.interval_s + 1.5  # a tick may be skipped and another come late
    section = node.look(after_s=late_s)

    (time,) = section.gpu_times
    assert (time.user, time.job_id) == ("ann", "42")
    assert (time.allocated_s_total, time.idle_s_total) == (20.0 + 2 * late_s, 10.0 + late_s)


def test_a_gpu_whose_use_is_not_told_is_neither_busy_nor_idle(node):
    node.tree.process(70, uid=1000)
    node.newest = known(trainer(70), gpus=(held(0, 70, use=None),))
    for _ in range(5):
        section = node.look()

    assert section.gpu_times == ()


def test_instances_of_a_gpu_count_by_their_own_use(node):
    node.tree.process(70, uid=1000)
    activity = GpuActivity(1.0, graphics_active_ratio=0.0)
    mig = (MigInstance("MIG-1", 3, 0, "1g.18gb", None, activity),)
    node.newest = known(trainer(70), gpus=(held(0, 70, use=None, instance=3, mig=mig),))
    for _ in range(3):
        section = node.look()

    assert section.processes[0].gpus == ((0, "GPU-0", 3),)
    assert section.gpu_times[0].idle_s_total == 2.0


def test_time_that_nobody_watched_is_not_counted(node):
    node.tree.process(70, uid=1000)
    node.newest = known(trainer(70), gpus=(held(0, 70),))
    node.look()
    node.look()

    assert node.look(after_s=3600).gpu_times[0].allocated_s_total == 1.0


def test_a_job_that_ended_is_forgotten_after_a_while(node):
    node.tree.process(70, uid=1000)
    node.newest = known(trainer(70), gpus=(held(0, 70),))
    node.look()
    node.look()
    node.newest = known()

    assert len(node.look().gpu_times) == 1
    assert node.look(after_s=901).gpu_times == ()


@pytest.mark.parametrize("file", ["stat", "status", "cgroup"])
@pytest.mark.parametrize("text", [None, b"", b"\xff\x00 garbage \n\n"])
def test_each_file_missing_or_odd_costs_no_other_process(node, file, text):
    node.tree.process(70, uid=1000)
    node.tree.process(71, uid=1000)
    if text is None:
        (node.tree.proc / "70" / file).unlink()
    else:
        node.tree.write(f"proc/70/{file}", text)
    node.newest = known(trainer(70), trainer(71), gpus=(held(0, 70), held(1, 71)))

    section = node.look()
    assert 71 in {one.pid for one in section.processes}
    assert owners(section)[1, 71] is Owner.ATTACHED
    for one in section.processes:
        assert one.identity.manager is Manager.NONE


def test_five_hundred_processes_are_bounded_and_those_with_a_probe_come_first(node):
    pids = tuple(range(1000, 1500))
    for pid in pids:
        node.tree.process(pid, uid=1000)
    node.newest = known(trainer(1499), gpus=(held(0, *pids),))

    section = node.look()
    assert len(section.holdings) == 500
    assert len(section.processes) == 128
    assert section.processes[0].pid == 1499
    assert whys(section) == {("process", "too_many"): 372}


def test_what_is_absent_is_told_at_each_tick_and_not_at_looks_alone(node):
    node.newest = known(trainer(70))

    assert [whys(node.look()) for _ in range(3)] == [{("process", "not_there"): 1}] * 3


def test_the_user_data_base_is_asked_once_for_each_user(node):
    for pid in (70, 71):
        node.tree.process(pid, uid=1000)
    node.newest = known(trainer(70), trainer(71))
    node.look()
    node.look(after_s=LOOK_S)

    assert node.asked == [1000]


def test_users_by_name_and_by_number():
    assert module.user_name(0) == "root"
    assert module.user_name(4_000_000_000) == "4000000000"


def test_ended_trainers_and_an_empty_node(node):
    node.tree.process(70, uid=1000)
    node.newest = known(replace(trainer(70), ended="exited"))
    assert node.look().processes == ()

    node.newest = lambda: None
    section = node.look()
    assert (section.processes, section.holdings, section.gpu_times) == ((), (), ())
