import pytest

from pymon.collectors.identity import place
from pymon.model.jobs import Manager
from pymon.sources.process import Membership

CID = "0123456789abcdef" * 4
POD = "8f1c0a3e-0b1d-4c2a-9d3e-1a2b3c4d5e6f"
UNDERSCORED = POD.replace("-", "_")
PODS = "/kubepods.slice/kubepods-burstable.slice"


def of(*paths, controllers=()):
    return place([Membership(controllers, path) for path in paths])


@pytest.mark.parametrize(
    ("path", "job", "step", "group_path"),
    [
        (
            "/system.slice/slurmstepd.scope/job_42/step_0/user/task_3",
            "42",
            "0",
            "/system.slice/slurmstepd.scope/job_42",
        ),
        (
            "/system.slice/node01_slurmstepd.scope/job_42/step_batch/user/task_special",
            "42",
            "batch",
            "/system.slice/node01_slurmstepd.scope/job_42",
        ),
        ("/slurm/uid_1000/job_77/step_1/task_0", "77", "1", "/slurm/uid_1000/job_77"),
        ("/slurm_node7/uid_0/job_7", "7", "", "/slurm_node7/uid_0/job_7"),
        (
            f"{PODS}/cri-containerd-{CID}.scope/system.slice/slurmstepd.scope/job_9/step_extern",
            "9",
            "extern",
            f"{PODS}/cri-containerd-{CID}.scope/system.slice/slurmstepd.scope/job_9",
        ),
    ],
)
def test_slurm_of_both_versions(path, job, step, group_path):
    found = of(path)

    assert found.identity.manager is Manager.SLURM
    assert (found.identity.slurm_job, found.identity.slurm_step) == (job, step)
    assert (found.identity.group, found.group_path) == (f"job_{job}", group_path)


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{CID}.scope",
        f"/kubepods/besteffort/pod{POD}/{CID}",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/crio-{CID}.scope",
        f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{CID}",
        f"/kubepods/pod{POD}/{CID}/init.scope/system.slice/slurm/job_1",
        f"/../../pod{POD}/{CID}",
        f"/../../kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{CID}.scope",
    ],
)
def test_kubernetes_in_all_its_spellings(path):
    found = of(path)

    if "containerd.service" in path:  # its pod stands within one name
        assert found.identity.container_id == CID
        return
    assert found.identity.manager is Manager.KUBERNETES
    assert (found.identity.pod_uid, found.identity.container_id) == (POD, CID)
    assert found.identity.group == f"pod{POD}/{CID[:12]}"
    assert CID in found.group_path.rpartition("/")[2]


@pytest.mark.parametrize(
    "path",
    [
        f"/system.slice/docker-{CID}.scope",
        f"/docker/{CID}",
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{CID}.scope",
    ],
)
def test_containers(path):
    found = of(path)

    assert found.identity.manager is Manager.DOCKER
    assert (found.identity.container_id, found.identity.group) == (CID, CID[:12])


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/train.service", "train.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.scope", "run-u7.scope"),
        ("/user.slice/user-1000.slice/user@1000.service", "user@1000.service"),
    ],
)
def test_units_and_sessions(path, unit):
    found = of(path)

    assert found.identity.manager is Manager.SYSTEMD
    assert (found.identity.unit, found.identity.job) == (unit, "")


@pytest.mark.parametrize("path", ["/", "/../../job_5", "/a/b", ""])
def test_what_tells_nothing_is_nothing(path):
    identity = of(path).identity

    assert (identity.manager, identity.job) == (Manager.NONE, "")


@pytest.mark.parametrize(
    "path",
    [
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0",
        "/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_1",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{POD}/{CID}",
        "/myslurm/job_1",
        "/../../user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1",
        f"/../../user.slice/user-1000.slice/pod{POD}/{CID}",
        "/slurm/job_1x",
    ],
)
def test_a_user_who_names_groups_like_anothers_job_is_not_believed(path):
    identity = of(path).identity

    assert (identity.slurm_job, identity.pod_uid) == ("", "")


@pytest.mark.parametrize(
    "name", ['a"b\\', "two\nlines", "\x1b[31m", "x" * 500, "\u202eevil", "\\xff"]
)
def test_hostile_names_are_printable_and_short(name):
    group = of(f"/{name}").identity.group

    assert group.isprintable()
    assert len(group) <= 64


def test_the_line_that_tells_most_counts():
    found = place(
        [
            Membership(("cpu",), "/"),
            Membership(("name=systemd",), "/system.slice/slurmd.service"),
            Membership(("memory",), "/slurm/uid_5/job_9/step_0"),
        ]
    )

    assert found.identity.slurm_job == "9"
    assert place([]).identity.group == "/"
