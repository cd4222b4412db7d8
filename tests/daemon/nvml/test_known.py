import pytest

from pymon.daemon.nvml.known import GPUS_MAX, KnownGpus
from pymon.daemon.nvml.roster import Roster
from pymon.daemon.nvml.supervisor import Supervisor
from pymon.model.gpu import GpuState
from tests.daemon.nvml.driver import complete, settings, states
from tests.nvml_double import standard_node, uuid_of

TWO = ((0, "A"), (1, "B"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpus.json"


def test_what_was_kept_is_there_for_the_next_daemon_of_the_same_host(path):
    KnownGpus(path, "one").keep(TWO)

    assert KnownGpus(path, "one").load() == TWO
    assert KnownGpus(path, "another").load() == ()


def test_nothing_is_written_again_that_has_not_changed(path):
    KnownGpus(path).keep(TWO)
    known = KnownGpus(path)
    known.load()
    path.unlink()
    known.keep(TWO)
    assert not path.exists()
    known.keep(TWO[:1])
    assert path.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"gpus": 3}', '{"host": "h", "gpus": [{"index": "x"}]}']
)
def test_a_file_that_is_not_ours_is_no_trouble(path, text):
    path.write_text(text)
    assert KnownGpus(path, "h").load() == ()


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path):
    KnownGpus(tmp_path / "none" / "gpus.json").keep(TWO)


def test_the_file_is_bounded(path):
    KnownGpus(path).keep(tuple((index, f"GPU-{index}") for index in range(1000)))
    assert len(KnownGpus(path).load()) == GPUS_MAX


def test_what_an_earlier_daemon_saw_is_unknown_until_the_driver_was_asked():
    roster = Roster(4.0, 25.0)
    roster.expect(TWO)
    section = roster.section(0.0)

    assert [(gpu.uuid, gpu.state) for gpu in section.gpus] == [
        ("A", GpuState.UNKNOWN),
        ("B", GpuState.UNKNOWN),
    ]


def test_a_gpu_that_did_not_come_back_is_missed_by_the_next_daemon(driver, path):
    first = driver(standard_node(3))
    first.supervisor.known = KnownGpus(path)
    first.until_read()
    first.supervisor.close()
    first.node.change(lambda state: state["gpus"].pop(1))
    first.supervisor = Supervisor(settings(first.node), known=KnownGpus(path))
    try:
        section = first.until(lambda s: states(s).count("removed") == 1)
        assert [gpu.uuid for gpu in section.gpus if gpu.state is GpuState.REMOVED] == [uuid_of(1)]
        first.until(lambda s: sum(map(complete, s.gpus)) == 2)
    finally:
        first.supervisor.close()
