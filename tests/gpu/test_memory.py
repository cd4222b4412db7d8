"""torch's allocator on a GPU, and on its double (where no size and no time means anything)."""

import subprocess

import pytest

MIB = 1 << 20


@pytest.mark.timeout(240)
def test_the_page_says_of_the_allocator_what_torch_says(scenario, note):
    said = scenario("memory").said
    for moment in ("before", "after"):
        ours, theirs = said[moment]["ours"], said[moment]["theirs"]
        assert {name: ours[name] for name in theirs} == theirs
        assert {"allocated_bytes", "reserved_bytes", "allocated_peak_bytes"} <= theirs.keys()
    before, after = said["before"]["ours"], said["after"]["ours"]
    assert after["alloc_retries_total"] == before["alloc_retries_total"] + 1
    assert after["ooms_total"] == before["ooms_total"] + 1
    assert after["inactive_split_bytes"] >= before["inactive_split_bytes"] + 5 * MIB
    assert after["allocated_peak_bytes"] == said["peak_before_looks"]
    note(
        allocator_read_us=said["look_us"],
        allocator_inactive_split_mib=after["inactive_split_bytes"] / MIB,
    )
    if scenario.on_gpu:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
        assert said["after"]["uuid"] in listed
        assert said["after"]["uuid"] != "" or "MIG" in listed
