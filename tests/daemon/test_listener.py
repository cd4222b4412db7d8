from concurrent.futures import ThreadPoolExecutor

import pytest

from pymon.base.errors import PymonError
from pymon.daemon import listener
from pymon.daemon.listener import default_path, listen


def test_a_second_daemon_is_refused_and_a_dead_ones_name_taken_over(tmp_path):
    path = tmp_path / "agent.sock"
    first = listen(path, 0o600)
    with pytest.raises(PymonError, match="running already"):
        listen(path, 0o600)
    first.close()

    listen(path, 0o600).close()


def test_a_path_that_cannot_be_had_says_what_to_do(tmp_path):
    with pytest.raises(PymonError, match=r"cannot listen at .*--socket PATH"):
        listen(tmp_path / "none" / "agent.sock", 0o600)


def test_the_default_place_falls_back_to_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(listener.agent, "SYSTEM_SOCKET", tmp_path / "file" / "pymon" / "agent.sock")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_path() == tmp_path / "pymon" / "agent.sock"

    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(PymonError, match="cannot be written and XDG_RUNTIME_DIR"):
        default_path()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(PymonError, match="no socket"):
        listen(path, 0o600)
    assert path.read_text() == "mine"


def test_two_daemons_that_start_at_once_do_not_both_have_the_name(tmp_path):
    path = tmp_path / "agent.sock"

    def start(_):
        try:
            return listen(path, 0o600)
        except PymonError:
            return None

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            socks = [sock for sock in pool.map(start, range(4)) if sock]
        assert len(socks) == 1
        socks[0].close()
