"""Real daemons and real training processes for integration tests, ended with the test."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from pymon.cli.child_env import training_environment
from tests import waiting

ROOT = Path(__file__).parents[2]
TRAINING = Path(__file__).with_name("training.py")
# What is looked at again is mostly a command's answer or a whole page: seldom enough to leave the machine to others.
until = partial(waiting.until, pause_s=0.2)


class Node:
    """A folder with a socket in it; `daemon` and `train` start processes that `end` ends."""

    def __init__(self, folder):
        self.folder, self.socket = folder, folder / "agent.sock"
        self.processes = []
        self.http = ""

    def daemon(self, *arguments, program=("-m", "pymon")):
        """Started and ready."""
        command = [sys.executable, *program, "daemon", "--no-kineto", *arguments]
        command += ["--socket", str(self.socket), "--state-dir", str(self.folder / "state")]
        process = self.start(command, dict(os.environ))
        line = process.stdout.readline()
        assert line.startswith("ready "), f"no ready line: {line!r}"
        self.http = line.split("http=")[1].strip()
        return process

    def train(self, *arguments, script=TRAINING):
        """A training process with the probe in it."""
        env = training_environment(os.environ, "test", self.socket)
        return self.start([sys.executable, str(script), *map(str, arguments)], env)

    def pymon(self, *arguments, timeout_s=150):
        """A command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "pymon", *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def start(self, command, env=None, **more):
        """A process that ends with the test."""
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, **more
        )
        self.processes.append(process)
        return process

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


class Samples(dict):
    """What one scrape gave, by family and label values; what is asked for and not there yet is waited for.

    Collectors run each at its own pace, so that a page holds some samples sooner than others.
    """

    def __init__(self, found, scrape):
        super().__init__(found)
        self._scrape = scrape

    def __missing__(self, key):
        def found():
            now = self._scrape()
            return now if key in now else None

        return until(found, what=f"{key}")[key]
