import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from pymon.base.errors import InputError, PymonError
from pymon.collectors import all_collectors
from pymon.daemon import config as configuration
from pymon.daemon import main as module
from pymon.daemon.main import Daemon, Options
from pymon.link import wire
from tests.daemon.pages import connect, hello, receive, send
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
COLLECTORS = [collector.name for collector in all_collectors(list, list)]


@pytest.fixture
def life(tmp_path, capsys):
    """Runs a daemon to its end beside a test's `talk(daemon)`, if any, in a thread; gives what both said."""

    def run(talk, config="", **options):
        path = tmp_path / "pymon.toml"
        path.write_text(config)
        chosen = {
            "config_path": path,
            "socket": tmp_path / "agent.sock",
            "state_dir": tmp_path / "state",
            "http": "off",
            "kineto": False,
        }
        options = Options(**(chosen | options))

        async def main():
            daemon = Daemon(options, configuration.load(path))
            talking = asyncio.create_task(asyncio.to_thread(_when_ready, daemon, talk))
            talking.add_done_callback(lambda task: task.exception() and daemon._end.set())
            await asyncio.wait_for(daemon.run(), 2 * PATIENCE_S)
            return await talking

        result = asyncio.run(main())
        return result, capsys.readouterr().out

    return run


def _when_ready(daemon, talk):
    if talk is None:
        return None
    until(lambda: daemon.socket.exists() and daemon.pipeline.newest, what="the first tick")
    return talk(daemon)


def ask(daemon, command):
    sock = connect(daemon.socket)
    send(sock, wire.Request(command))
    reply = receive(sock)
    sock.close()
    return reply


def end(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_answers_and_ends_on_a_signal(life, tmp_path, number):
    def talk(daemon):
        body = ask(daemon, "status").body
        end(number)
        return body

    body, printed = life(talk)

    assert printed == f"ready socket={tmp_path}/agent.sock http=off\n"
    assert body["pid"] == os.getpid()
    assert {row["name"] for row in body["collectors"]} == set(COLLECTORS)
    assert not (tmp_path / "agent.sock").exists()


def test_metrics_are_served_where_it_says(life):
    def talk(daemon):
        with urllib.request.urlopen(f"{daemon.http_url}/metrics", timeout=PATIENCE_S) as page:
            text = page.read().decode()
        end()
        return daemon.http_url, text

    (url, text), printed = life(talk, http="127.0.0.1:0")

    assert f"http={url}" in printed
    assert 'collector="host"' in text


def test_a_private_daemon_ends_after_its_last_client(life, monkeypatch):
    monkeypatch.setattr(module, "LAST_CLIENT_S", 0.3)

    def talk(daemon):
        holder = connect(daemon.socket)
        send(holder, wire.Request("hold"))
        trainer, _ = hello(daemon.socket)
        until(lambda: daemon.server.clients == 2, what="both clients")
        trainer.close()
        time.sleep(0.8)  # more than a daemon without a client would live
        answered = ask(daemon, "status").ok
        holder.close()
        return answered

    assert life(talk, private=True, http=None)[0]


def test_a_private_daemon_that_nobody_comes_to_ends(life, monkeypatch):
    monkeypatch.setattr(module, "FIRST_CLIENT_S", 5.0)

    assert life(None, private=True, http=None)[1].endswith(" http=off\n")


def test_a_reload_counts_and_a_bad_file_changes_nothing(life, caplog):
    caplog.set_level("INFO")

    def talk(daemon):
        path = daemon.options.config_path

        def reload(text, told):
            path.write_text(text)
            end(signal.SIGHUP)
            until(lambda: told in caplog.text, what=told)
            names = [c.name for c in daemon.pipeline.runner.collectors]
            return daemon.pipeline.steps, names, "pymon_host_cpus" in daemon.renderer.disabled

        changed = '[capture]\nsteps = 7\n[collectors]\ndisabled = ["nvml", "shm"]\n'
        changed += '[prometheus]\ndisabled = ["pymon_host_*"]'
        states = [
            reload(changed, "configuration reloaded"),
            reload("[capture]\nstep = 9", "did you mean 'steps'?; the old configuration stays"),
            reload('[collectors]\ndisabled = ["nvmll"]', "'nvmll'; did you mean 'nvml'?"),
        ]
        end()
        return states

    states, _ = life(talk)

    left = [name for name in COLLECTORS if name not in ("nvml", "shm")]
    assert states == [(7, left, True)] * 3


def test_sigusr1_captures_and_ends_in_a_receipt(life):
    def talk(daemon):
        end(signal.SIGUSR1)
        capture = until(lambda: daemon.pipeline.ledger.captures, what="a capture")[0]
        end()
        return capture

    capture, _ = life(talk)

    assert capture.cause == "signal"
    assert capture.receipts[0].reason == "no process that could be captured"


@pytest.mark.parametrize("where", ["collectors", "detectors"])
def test_a_name_that_switches_nothing_off_is_an_error_at_start(life, where):
    with pytest.raises(InputError, match=f"{where}.disabled: unknown name 'typo'"):
        life(lambda daemon: None, config=f'[{where}]\ndisabled = ["typo"]')


def test_a_state_folder_that_is_there_keeps_its_mode(life, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    life(lambda daemon: end(), state_dir=shared)

    modes = {path.name: path.stat().st_mode & 0o7777 for path in [shared, *shared.iterdir()]}
    assert (modes["shared"], modes["captures"], modes["spool"]) == (0o1777, 0o750, 0o3733)


def test_a_state_folder_that_cannot_be_had_is_named_with_what_to_do(life, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(PymonError, match=r"file/state: .*--state-dir DIR"):
        life(lambda daemon: None, state_dir=tmp_path / "file" / "state")


def test_the_command_ends_cleanly_and_a_second_one_is_refused(tmp_path):
    command = [sys.executable, "-m", "pymon", "daemon", "--no-kineto", "--http", "off"]
    command += ["--socket", str(tmp_path / "s"), "--state-dir", str(tmp_path / "state")]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == f"ready socket={tmp_path}/s http=off\n"
        second = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (second.returncode, second.stdout) == (1, "")
        assert f"a daemon is running already at {tmp_path}/s" in second.stderr
        assert "Traceback" not in second.stderr

        first.terminate()
        assert first.wait(PATIENCE_S) == 0
    finally:
        first.kill()
        first.communicate()
