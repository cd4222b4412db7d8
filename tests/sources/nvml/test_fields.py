import pytest

from pymon.sources.nvml import fields

THROTTLE = [(269, 0), (270, 0), (271, 0)]


@pytest.mark.parametrize("version", ["580.126.09", "580.200", "590.48.01", "615.71"])
def test_renumbered_fields_are_asked_of_drivers_that_have_them_there(version):
    assert fields.known_to(version, [(74, 0), *THROTTLE]) == [(74, 0), *THROTTLE]


@pytest.mark.parametrize("version", ["580.65.06", "575.51", "570.86.10", "535.104", "", "garbage"])
def test_and_never_of_others_where_they_mean_something_else(version):
    assert fields.known_to(version, [(74, 0), *THROTTLE]) == [(74, 0)]


@pytest.mark.parametrize(
    ("kind", "bits", "number"),
    [
        (0, 0x3FF8000000000000, 1.5),  # double
        (0, 0x7FF8000000000000, None),  # not a number
        (1, 0xDEAD00000005, 5),  # unsigned int: what lies beside it is none of its
        (1, 0xFFFFFFFF, None),
        (2, 2**40, 2**40),  # unsigned long
        (3, 2**63 + 1, 2**63 + 1),  # unsigned long long
        (3, 2**64 - 1, None),
        (4, 2**64 - 5, -5),  # signed long long
        (5, 2**32 - 5, -5),  # signed int
        (6, 0x12345, 0x2345),  # unsigned short
    ],
)
def test_values_of_every_type(kind, bits, number):
    assert fields.number_of(kind, bits) == number
