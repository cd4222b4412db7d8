import re
from pathlib import Path

import msgspec
import pytest

from pymon.base.errors import InputError
from pymon.daemon.config import Config, check_names, listen_address, load, matching


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "pymon.toml"
        path.write_text(text)
        return path

    return write


def test_without_a_file_all_defaults_hold():
    assert load(None).http.listen == "127.0.0.1:9409"


def test_keys_that_are_given_count(file):
    config = load(file('[http]\nlisten = "off"\n[capture]\nsteps = 7\n'))

    assert (config.http.listen, config.capture.steps, config.capture.max_s) == ("off", 7, 30.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[capture]\nstep = 3", r"unknown key 'step' in \[capture\]; did you mean 'steps'\?"),
        ("[captures]\nsteps = 3", r"unknown section \[captures\]; did you mean 'capture'\?"),
        ("[capture]\nzzz = 3", r"unknown key 'zzz' in \[capture\]; known are automatic, "),
        ("capture = 3", "capture is a section"),
        ('[capture]\nsteps = "3"', "capture.steps: Expected `int`, got `str`"),
        ('[http]\nlisten = "9409"', "expected HOST:PORT"),
        ("[capture", "not TOML"),
        ('[daemon]\nlog_level = "loud"', "daemon.log_level: Invalid enum value 'loud'"),
        ("[capture]\nsteps = 0", "capture.steps: Expected `int` >= 1"),
        ("[capture]\nmax_s = -1", "capture.max_s: Expected `float` >= 0"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(file, text, said):
    path = file(text)
    with pytest.raises(InputError, match=said):
        load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_a_name_that_switches_nothing_off_is_named():
    check_names("collectors", ["host"], ["host", "shm"])
    with pytest.raises(InputError, match=r"collectors.disabled: unknown name 'hosts'; did you me"):
        check_names("collectors", ["hosts"], ["host", "shm"])


def test_patterns_name_families_and_one_that_fits_none_is_the_users_error():
    known = ["pymon_gpu_info", "pymon_gpu_power_watts", "pymon_host_cpus"]

    assert matching("prometheus", ["pymon_gpu_*"], known) == set(known[:2])
    with pytest.raises(InputError, match="fits no family; did you mean 'pymon_host_cpus'"):
        matching("prometheus", ["pymon_host_cpu"], known)


@pytest.mark.parametrize(
    ("text", "address"),
    [("off", None), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9409", ("::1", 9409))],
)
def test_listen_addresses(text, address):
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", ":9409", "host:http", "host:99999"])
def test_what_is_no_address_is_the_users_error(text):
    with pytest.raises(InputError):
        listen_address(text)


def test_the_page_names_every_key_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "config.md").read_text()
    rows = {}
    section = ""
    for line in page.splitlines():
        if found := re.match(r"\| (?:`\[(\w+)\]`)? ?\| `(\w+)` \| `(.+?)` \|", line):
            section = found.group(1) or section
            rows[section, found.group(2)] = found.group(3)

    expected = {
        (name, key): msgspec.json.encode(value).decode()
        for name, values in msgspec.to_builtins(Config()).items()
        for key, value in values.items()
    }
    assert rows == expected
