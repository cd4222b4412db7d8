import contextlib
import random

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import podresources
from pymon.sources.podresources import PodDevice, PodResources
from tests.kubelet_double import ANSWER, REFUSAL, answer_of, field, frame, kubelet, pods


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kubelet.sock"


def devices(path):
    return PodResources(str(path)).devices()


def test_a_servers_recorded_answer(path):
    with kubelet(path, ANSWER):
        assert devices(path) == [
            PodDevice("ml", "pod-0", "train", "nvidia.com/gpu", "GPU-0::0"),
            PodDevice("ml", "pod-0", "train", "nvidia.com/gpu", "GPU-x0"),
        ]


def test_a_refusal_is_a_failure(path):
    with kubelet(path, REFUSAL), pytest.raises(SourceFailed, match="answered no list of pods"):
        devices(path)


def test_a_large_answer_in_many_frames(path):
    many = [(b"ml", b"pod-%d" % n, b"c", b"nvidia.com/gpu", b"GPU-%d" % n) for n in range(5000)]
    with kubelet(path, answer_of(pods(*many))):
        found = devices(path)

    assert (len(found), found[-1].device) == (5000, "GPU-4999")


def test_fields_of_newer_versions_are_passed_over(path):
    newer = field(9, b"x") + b"\x50\x96\x01" + b"\x59" + b"\0" * 8 + b"\x5d" + b"\0" * 4
    with kubelet(
        path, answer_of(newer + pods((b"ml", b"p", b"c", b"nvidia.com/gpu", b"GPU-1")) + newer)
    ):
        assert [one.device for one in devices(path)] == ["GPU-1"]


def test_no_kubelet_here(path):
    with pytest.raises(SourceAbsent):
        devices(path)


def test_one_that_does_not_answer_is_given_up_in_time(path, monkeypatch):
    monkeypatch.setattr(podresources, "TIMEOUT_S", 0.2)
    with kubelet(path, b"", close=False), pytest.raises(SourceFailed, match="no answer within"):
        devices(path)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100,
        ANSWER[:100],
        frame(7, 0, 0, b"\0" * 8),
        frame(3, 0, 1, b"\0" * 4),
        frame(0, 1, 1, b"\0\0\0\0\x05abc"),  # shorter than it says
        frame(0, 1, 1, b"\1\0\0\0\0"),  # compressed
        frame(0, 9, 1, b"\xff"),  # more padding than there is
        answer_of(b"\x0a\xff\xff\xff\xff\x0f"),  # a field longer than the message
        answer_of(b"\x0b"),
        answer_of(b"\xff" * 20),
    ],
)
def test_what_is_no_answer_is_a_failure(path, answer):
    with kubelet(path, answer), pytest.raises(SourceFailed):
        devices(path)


def test_no_bytes_are_an_error_of_another_kind(path):
    source = random.Random(5)
    for number in range(200):
        broken = bytearray(ANSWER)
        for _ in range(4):
            broken[source.randrange(len(broken))] = source.randrange(256)
        one = path.with_name(f"{number}.sock")
        with kubelet(one, bytes(broken)), contextlib.suppress(SourceFailed):
            assert all(isinstance(device, PodDevice) for device in devices(one))
