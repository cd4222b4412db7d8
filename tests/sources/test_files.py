import os

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.sources import files


def test_reads_whole_files_and_makes_odd_bytes_printable(tmp_path):
    (tmp_path / "big").write_text("x" * 200_000)
    (tmp_path / "odd").write_bytes(b"a\xffb")

    assert len(files.read(f"{tmp_path}/big")) == 200_000
    assert files.read(f"{tmp_path}/odd") == "a\\xffb"


def test_what_is_no_file_of_the_kernel_neither_blocks_nor_fills_memory(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert files.read(f"{tmp_path}/pipe") == ""
    assert len(files.read("/dev/zero")) <= files.MAX_BYTES + 64 * 1024


def test_missing_is_absent_and_a_folder_in_its_place_a_failure(tmp_path):
    with pytest.raises(SourceAbsent, match="No such file"):
        files.read(f"{tmp_path}/none")
    with pytest.raises(SourceAbsent):
        files.names(f"{tmp_path}/none")
    with pytest.raises(SourceFailed):
        files.read(str(tmp_path))


def test_without_the_right_it_is_absent_for_that_reason(tmp_path):
    refused = files.as_source_error("/proc/1/root", PermissionError(13, "Permission denied"))

    assert isinstance(refused, files.NotPermitted)
    assert "/proc/1/root: Permission denied" in str(refused)


@pytest.mark.parametrize("text", ["", "x", "1 2", "0x10"])
def test_a_number_that_is_none_is_a_failure_that_names_the_file(tmp_path, text):
    (tmp_path / "n").write_text(text)

    with pytest.raises(SourceFailed, match=f"{tmp_path}/n"):
        files.number(f"{tmp_path}/n")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set()), ("0,2-2", {0, 2})],
)
def test_lists_of_processors(text, cpus):
    assert files.cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "0-99999999999", "a", "-1", "1-"])
def test_lists_that_are_none(text):
    with pytest.raises(ValueError):  # noqa: PT011 - of many texts
        files.cpu_list(text)


def test_lines_end_at_newlines_alone():
    assert files.lines("a\x0bb\x1cc\u2028d\n\ne\n") == ["a\x0bb\x1cc\u2028d", "e"]
