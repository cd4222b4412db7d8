import os

import pytest

from pymon.capture import spool


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "spool" / "c1-abc"
    folder.mkdir(parents=True)
    return folder


def test_what_one_order_left_is_removed(folder):
    for name in ("trace.json", "call_sites.json"):
        (folder / name).write_text("{}")

    spool.clear(folder)

    assert not folder.exists()


def test_a_link_in_the_folders_place_is_not_followed(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    folder.rmdir()
    folder.symlink_to(elsewhere)

    spool.clear(folder)

    assert (elsewhere / "precious").exists()


def test_a_link_among_the_files_is_removed_and_its_target_is_not(folder, tmp_path):
    (tmp_path / "precious").write_text("x")
    (folder / "trace.json").symlink_to(tmp_path / "precious")

    spool.clear(folder)

    assert (tmp_path / "precious").exists()
    assert not folder.exists()


def test_a_tree_too_deep_to_walk_stays_and_harms_nothing(folder):
    here = os.open(folder, os.O_RDONLY)
    fds = [here]
    for _ in range(300):
        os.mkdir("a", dir_fd=fds[-1])
        fds.append(os.open("a", os.O_RDONLY, dir_fd=fds[-1]))

    spool.clear(folder)

    assert folder.exists()
    for fd in reversed(fds[:-1]):
        os.rmdir("a", dir_fd=fd)
    for fd in fds:
        os.close(fd)


def test_a_start_clears_what_came_too_late(folder):
    (folder / "trace.json").write_text("{}")
    (folder.parent / "no folder").write_text("left alone")

    spool.clear_all(folder.parent)

    assert [path.name for path in folder.parent.iterdir()] == ["no folder"]
    spool.clear_all(folder.parent / "absent")
