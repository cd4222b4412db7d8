import pytest

from pymon.base.errors import SourceAbsent
from pymon.collectors.pods import PodsCollector
from pymon.sources.podresources import PodResources
from tests.collectors.nodes import whys
from tests.kubelet_double import ANSWER, answer_of, kubelet, pods


@pytest.fixture
def collect(tmp_path):
    def collect(answer):
        path = tmp_path / "kubelet.sock"
        with kubelet(path, answer):
            return PodsCollector(PodResources(str(path))).collect()

    return collect


def test_the_pod_of_each_gpu_and_share(collect):
    first, second = collect(ANSWER).gpus

    assert (first.namespace, first.pod, first.container, first.uuid) == (
        "ml",
        "pod-0",
        "train",
        "GPU-0",
    )
    assert second.uuid == "GPU-x0"


def test_other_devices_are_none_and_names_are_printable(collect):
    answer = pods(
        (b"ml", b"p", b"c", b"rdma/hca", b"mlx5_0"),
        (b"ml", b'p\n"\x1b', b"\xff", b"nvidia.com/mig-1g.18gb", b"MIG-1"),
    )
    (one,) = collect(answer_of(answer)).gpus

    assert one.uuid == "MIG-1"
    assert (one.pod + one.container).isprintable()


def test_hundreds_of_shares_are_bounded(collect):
    many = [(b"ml", b"p", b"c", b"nvidia.com/gpu", b"GPU-%d" % n) for n in range(200)]
    section = collect(answer_of(pods(*many)))

    assert len(section.gpus) == 128
    assert whys(section) == {("gpu", "too_many"): 72}


def test_no_pod_has_a_gpu_and_no_kubelet_here(collect, tmp_path):
    with pytest.raises(SourceAbsent, match="no pod of this node has a GPU"):
        collect(answer_of(b""))
    with pytest.raises(SourceAbsent):
        PodsCollector(PodResources(f"{tmp_path}/none")).collect()
