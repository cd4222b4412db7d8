import os
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest

from pymon.base.errors import SourceAbsent
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.process import Membership, Processes
from tests.host_tree import HostTree

ROOT = Path(__file__).parents[2]
OWN = "/kubepods/burstable/pod1/own"
OTHER = "/kubepods/burstable/pod2/other"


def v2(path):
    return (Membership((), path),)


@pytest.fixture
def tree(tmp_path):
    """The host's tree as it is mounted into a container, whose own group is one of it."""
    tree = HostTree(tmp_path)
    for path in ("/", OWN, f"{OWN}/inner", OTHER, f"{OTHER}/a/b"):
        tree.cgroup_v2(path, cpu_max="max 100000")
    return tree


@pytest.fixture
def paths(tree):
    return CgroupPaths(tree.roots, own=f"{tree.sys}/fs/cgroup{OWN}")


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ("/", OWN),
        ("/inner", f"{OWN}/inner"),
        ("/../../pod2/other", OTHER),
        ("/../../../../system.slice/x.service", "/system.slice/x.service"),
        ("/../../../..", ""),
    ],
)
def test_paths_seen_from_a_namespace_of_its_own_are_found_in_the_hosts_tree(
    tree, paths, told, path
):
    tree.cgroup_v2("/system.slice/x.service", cpu_max="max 100000")

    assert paths.group(v2(told), "cpu").folder == f"{tree.sys}/fs/cgroup{path}"


def test_above_the_hosts_top_there_is_nothing(paths):
    with pytest.raises(SourceAbsent, match="outside of the daemon's control group namespace"):
        paths.group(v2("/../../../../../x"), "cpu")


def test_without_the_hosts_tree_what_is_outside_stays_outside(tree):
    alone = CgroupPaths(tree.roots, own=f"{tree.sys}/fs/cgroup")
    assert alone.group(v2(OTHER), "cpu").folder.endswith(OTHER)

    with pytest.raises(SourceAbsent, match="outside"):
        alone.group(v2("/../../pod2/other"), "cpu")
    with pytest.raises(SourceAbsent, match="outside"):
        CgroupPaths(tree.roots, own=f"{tree.folder}/none").group(v2("/../x"), "cpu")


def test_the_group_that_the_kernel_names_above_another(tree, paths):
    leaf = paths.group(v2("/../../pod2/other/a/b"), "cpu")

    assert leaf.ancestor("/../../pod2/other").folder == f"{tree.sys}/fs/cgroup{OTHER}"
    assert leaf.ancestor("/../../pod2/other/a/b") == leaf
    assert leaf.ancestor("/elsewhere") == leaf
    assert list(leaf.upwards())[-1] == f"{tree.sys}/fs/cgroup"


def test_a_containers_own_mount_of_a_longer_path(tree):
    tree.cgroup_v1("cpu", "/", cpu_cfs_quota_us="-1")
    tree.cgroup_v1("cpu", "/in", cpu_cfs_quota_us="-1")
    point = f"{tree.sys}/fs/cgroup/cpu"
    tree.write("proc/self/mountinfo", f"34 31 0:29 /docker/a {point} ro - cgroup cgroup rw,cpu\n")
    paths = CgroupPaths(tree.roots)

    group = paths.group((Membership(("cpu",), "/docker/a/in"),), "cpu")
    assert (group.version, group.folder) == (1, f"{point}/in")
    assert group.ancestor("/docker/a").folder == point
    with pytest.raises(SourceAbsent):  # another container's
        paths.group((Membership(("cpu",), "/docker/b"),), "cpu")


IN_A_NAMESPACE = """
echo $$ > "$1/group/inner/cgroup.procs"
exec unshare --cgroup --mount sh -c '
    mount --bind "$1" "$2/sys/fs/cgroup" && mount -t cgroup2 none "$2/own" && exec "$4" -c "$3" "$2" "$5"
' sh "$@"
"""
FIND = """
import sys
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.process import Processes
from pymon.sources.roots import Roots
folder, pid = sys.argv[1], int(sys.argv[2])
version_2 = [member for member in Processes().cgroup(pid) if not member.controllers]
group = CgroupPaths(Roots(sys=f"{folder}/sys"), own=f"{folder}/own").group(version_2, "cpu")
above = group.ancestor("/../../other")
print(version_2[0].path, *(one.folder.removeprefix(folder) for one in (group, above)))
"""


@pytest.mark.skipif(os.geteuid() != 0 or which("unshare") is None, reason="needs root and unshare")
def test_a_real_namespace_of_this_kernel(tmp_path):
    top = next(
        (mount.point for mount in Processes().mounts("self") if mount.kind == "cgroup2"), None
    )
    if top is None:
        pytest.skip("version 2 is not mounted here")
    group = Path(top, f"pymon-test-{os.getpid()}")
    folders = [group / "group" / "inner", group / "other" / "leaf"]
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        for folder in folders:
            folder.mkdir(parents=True)
        (folders[1] / "cgroup.procs").write_text(str(sleeping.pid))
        arguments = [str(group), str(tmp_path), FIND, sys.executable, str(sleeping.pid)]
        # The bind mount shows the test's own group as the host's top would be shown.
        done = subprocess.run(
            ["sh", "-c", IN_A_NAMESPACE, "sh", *arguments], cwd=ROOT, capture_output=True, text=True
        )
    except OSError as err:
        pytest.skip(f"no group can be made here: {err}")
    finally:
        sleeping.kill()
        sleeping.wait()
        for folder in (*folders, group / "group", group / "other", group):
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)

    assert done.stdout.split() == [
        "/../../other/leaf",
        "/sys/fs/cgroup/other/leaf",
        "/sys/fs/cgroup/other",
    ], done.stderr


@pytest.mark.parametrize("memberships", [(), (Membership(("memory",), "/a"),)])
def test_a_process_in_no_group_of_the_controller(tree, memberships):
    with pytest.raises(SourceAbsent, match="in no group that has cpu"):
        CgroupPaths(tree.roots).group(memberships, "cpu")
