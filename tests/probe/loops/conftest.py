"""Fixtures that run a loop watched and give what its page says; the loops stand in the test files beside this one.

`counted(loop, *arguments)` runs it in a fork of one process that attached through the boot finder, `fresh(...)` in a
new Python, `torchrun(ranks, loop, ...)` in several; `launched(command)` gives all pages that a command left.
"""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pymon import native
from tests.probe.loops.child import command
from tests.probe.training import ROOT, environment
from tests.waiting import PATIENCE_S

PHASES = 5  # data wait, forward, backward, optimizer, other: they part a step
NOBODY = "/nonexistent/agent.sock"
TIMEOUT_S = 2.5 * PATIENCE_S  # several processes import torch at once


class Page(SimpleNamespace):
    """What one page said, the totals by short names, and its ring."""

    @property
    def counts(self):
        return self.steps, self.backwards, self.optimizer_calls, self.batches


def checked(said):
    """The page, after what holds for every loop was looked at: no step is missing, and its phases sum to it."""
    assert said.pop("error") == ""
    if "steps_total" not in said:
        return Page(steps=None, **said)
    page = Page(**{name.removesuffix("_total"): value for name, value in said.items()})
    numbers = [step["step"] for step in page.ring]
    assert numbers == list(range(page.lost + 1, page.steps + 1))
    for step in page.ring:
        assert sum(step["phase_ns"][:PHASES]) == step["duration_ns"], step
    if page.lost == 0:
        assert sum(step["duration_ns"] for step in page.ring) == page.step_ns
        assert sum(page.phase_ns[:PHASES]) == page.step_ns
    return page


@pytest.fixture(autouse=True, scope="session")
def _probe_is_built():
    pytest.importorskip("torch", reason="the probe hooks torch")
    if native.probe()[0] is None:
        pytest.skip(native.probe()[1])


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    """The process whose forks run loops, and the folder of their pages."""
    pages = tmp_path_factory.mktemp("pages")
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.probe.loops.child"],
        cwd=ROOT,
        env=environment(NOBODY, PYMON_TEST_PAGES=str(pages)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process, pages
    process.stdin.close()
    process.wait(PATIENCE_S)


@pytest.fixture
def counted(nursery):
    process, pages = nursery

    def run(loop, *arguments):
        print(
            json.dumps([loop.__module__, loop.__name__, arguments]), file=process.stdin, flush=True
        )
        pid = process.stdout.readline().strip()
        return checked(json.loads((pages / f"{pid}.json").read_text()))

    return run


@pytest.fixture
def launched(tmp_path):
    """Runs a command line of Python; gives every page that its processes left, by RANK or, without one, by pid."""

    def run(arguments, **env):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            cwd=ROOT,
            env=environment(NOBODY, PYMON_TEST_PAGES=str(tmp_path), **env),
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        said = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        errors = "".join(one["error"] for one in said)
        assert done.returncode == 0, f"{errors}\n{done.stderr[-3000:]}"
        said.sort(key=lambda one: (int(one["rank"] or 0), one.get("pid", 0)))
        return [checked(one) for one in said]

    return run


@pytest.fixture
def fresh(launched):
    def run(loop, *arguments, **env):
        (page,) = launched(command(loop, *arguments), **env)
        return page

    return run


@pytest.fixture
def torchrun(launched):
    """`--nproc-per-node` processes of one node, as `torchrun` starts them."""

    def run(ranks, loop, *arguments):
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        return launched([*launcher, *command(loop, *arguments)], OMP_NUM_THREADS="1")

    return run
