import pytest

from pymon.daemon.nvml.roster import XID_KINDS_MAX, Roster
from pymon.model.gpu import FastReadings, GpuIdentity, GpuState, SlowReadings
from pymon.sources.nvml import wire


@pytest.fixture
def roster():
    return Roster(fresh_s=4.0, slow_fresh_s=25.0)


def read(index, uuid, state=GpuState.OK, slow=None):
    identity = GpuIdentity(uuid, "H200", "", "", False, False) if uuid else None
    fast = FastReadings(utilization_ratio=0.5) if state is GpuState.OK else None
    return wire.GpuRead(index, uuid, state, "", identity, fast, slow)


def done(*xids):
    return wire.Done(xids, True, 1000, 1, ())


def states(roster, now_s=0.0):
    return {gpu.uuid: gpu.state.value for gpu in roster.section(now_s).gpus}


def test_readings_stand_for_now_until_they_are_too_old(roster):
    roster.note(read(0, "A", slow=SlowReadings(power_average_w=1.0)), 100.0, 0.0)

    for now_s, fast, slow in [(104.0, True, True), (105.0, False, True), (126.0, False, False)]:
        (gpu,) = roster.section(now_s).gpus
        assert gpu.state is (GpuState.OK if fast else GpuState.UNKNOWN)
        assert (gpu.fast is not None, gpu.slow is not None) == (fast, slow)
        assert gpu.identity.name == "H200"
    assert gpu.reason == "not read for 26 s"


def test_a_gpu_without_a_name_is_known_by_its_index_until_it_tells_it(roster):
    roster.note(read(1, "", GpuState.LOST), 0.0, 0.0)
    assert states(roster) == {"": "lost"}
    roster.note(read(1, "B"), 0.0, 0.0)
    assert states(roster) == {"B": "ok"}
    roster.note(read(1, "", GpuState.LOST), 0.0, 0.0)
    assert states(roster) == {"B": "lost"}


def test_what_a_sweep_does_not_list_is_removed_unless_it_was_skipped(roster):
    for _ in range(2):
        for index, uuid in enumerate("ABC"):
            roster.note(read(index, uuid), 0.0, 0.0)
        roster.done(done(), (), 0.0)
    roster.note(read(0, "B"), 0.0, 0.0)
    roster.done(done(), (2,), 0.0)

    assert states(roster) == {"A": "removed", "B": "ok", "C": "ok"}
    roster.note(read(1, "A"), 0.0, 0.0)
    assert states(roster)["A"] == "ok"


def test_xids_are_counted_by_gpu_and_code_and_stay_when_the_gpu_goes(roster):
    roster.note(read(0, "A"), 0.0, 0.0)
    roster.done(done(wire.Xid("A", 79), wire.Xid("A", 79), wire.Xid("unknown", 1)), (), 5.0)
    roster.done(done(), (), 6.0)

    (gpu,) = roster.section(0.0).gpus
    assert gpu.state is GpuState.REMOVED
    assert [(x.xid, x.events_total, x.last_real_s) for x in gpu.xids] == [(79, 2, 5.0)]


def test_codes_beyond_the_bound_count_as_unknown_ones(roster):
    roster.note(read(0, "A"), 0.0, 0.0)
    roster.done(done(*(wire.Xid("A", 1000 + n) for n in range(XID_KINDS_MAX + 5))), (), 0.0)

    (gpu,) = roster.section(0.0).gpus
    assert len(gpu.xids) == XID_KINDS_MAX + 1
    assert gpu.xids[-1].xid == 999
    assert gpu.xids[-1].events_total == 5
