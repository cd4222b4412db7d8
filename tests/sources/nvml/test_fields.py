import pytest

from pymon.sources.nvml import fields

THROTTLE = [(269, 0), (270, 0), (271, 0)]


@pytest.mark.parametrize("version", ["580.126.09", "580.200", "590.48.01", "615.71"])
def test_renumbered_fields_are_asked_of_drivers_that_have_them_there(version):
    assert fields.known_to(version, [(74, 0), *THROTTLE]) == [(74, 0), *THROTTLE]


@pytest.mark.parametrize("version", ["580.65.06", "575.51", "570.86.10", "535.104", "", "garbage"])
def test_and_never_of_others_where_they_mean_something_else(version):
    assert fields.known_to(version, [(74, 0), *THROTTLE]) == [(74, 0)]
