"""`pymon demo` takes nothing for its fault that came before it: captures of other steps, noise of the machine."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from pymon.base.errors import PymonError
from pymon.cli import demo
from pymon.cli.progress import Progress
from pymon.demo.faults import Planted
from tests.reports.run_summaries import CAPTURE, INCIDENT, SUMMARY

PID, STEP = 4711, 500
PLANTED_NS = INCIDENT.began_real_ns - 10**9
PLANTED = f"a warning of torch\nfault planted at step {STEP}, {PLANTED_NS} ns\n"
QUIET = replace(SUMMARY, incidents=(), captures=())


def captured(first_step, capture_id="c1"):
    """A capture from that step on; its diagnosis names the fault of the loader."""
    receipts = tuple(replace(one, first_step=first_step) for one in CAPTURE.receipts)
    return replace(CAPTURE, capture_id=capture_id, receipts=receipts)


def of_another_process(summary):
    finding = replace(INCIDENT.finding, subject=replace(INCIDENT.finding.subject, pid=1))
    receipts = tuple(replace(one, pid=1, first_step=STEP + 1) for one in CAPTURE.receipts)
    other = replace(CAPTURE, capture_id="other", receipts=receipts)
    return replace(
        summary,
        incidents=(replace(INCIDENT, finding=finding, began_real_ns=0), *summary.incidents),
        captures=(other, *summary.captures),
    )


class TrainingDouble:
    pid, returncode = PID, None

    def poll(self):
        return None


@dataclass
class Scene:
    """What the daemon says, one summary a look, and what the training's log says by then."""

    folder: Path
    summaries: list
    log: str = PLANTED

    def __call__(self, socket, run_id):
        (self.folder / demo.TRAINING_LOG).write_text(self.log)
        return self.summaries.pop(0)


@pytest.fixture
def watch(tmp_path, monkeypatch):
    def play(*summaries, log=PLANTED):
        scene = Scene(tmp_path, list(summaries), log)
        monkeypatch.setattr(demo, "_summary", scene)
        monkeypatch.setattr(demo, "_POLL_S", 0.0)
        progress = Progress(Console(), quiet=True)
        found = demo._watch(
            tmp_path / "s", "r", "data-loader", TrainingDouble(), progress, tmp_path
        )
        assert not scene.summaries
        return found

    return play


def test_a_capture_of_steps_with_the_fault_is_the_answer(watch):
    whole = replace(SUMMARY, captures=(captured(STEP + 1),))

    assert watch(QUIET, whole) == captured(STEP + 1)


def test_a_capture_of_steps_before_the_fault_is_none_even_if_it_names_it(watch):
    early, right = captured(STEP, "early"), captured(STEP + 40, "right")
    first, second = (replace(SUMMARY, captures=found) for found in ((early,), (early, right)))

    assert watch(first, second).capture_id == "right"


def test_what_concerns_another_process_is_not_looked_at(watch):
    whole = replace(SUMMARY, captures=(captured(STEP + 1),))

    assert watch(of_another_process(QUIET), of_another_process(whole)) == captured(STEP + 1)


@pytest.mark.parametrize("log", ["", PLANTED.replace(str(PLANTED_NS), str(PLANTED_NS + 10**10))])
def test_what_is_noticed_before_there_is_a_fault_is_noise(watch, log):
    with pytest.raises(demo.Disturbed, match="a step takes 90"):
        watch(QUIET, SUMMARY, log=log)


def test_the_training_script_says_when_it_planted_its_fault():
    assert Planted.told("fault planted") is None
    assert Planted.told(PLANTED) == Planted(STEP, PLANTED_NS)


@pytest.fixture
def trainings(monkeypatch):
    """Runs the command with so many trainings that are disturbed; gives its answer and how many there were."""

    def run(disturbed):
        begun = []

        @contextlib.contextmanager
        def training(*_):
            begun.append(TrainingDouble())
            yield begun[-1]

        def watched(*_):
            if len(begun) <= disturbed:
                raise demo.Disturbed("slow")
            return captured(STEP + 1)

        daemon = contextlib.nullcontext(type("DaemonDouble", (), {"socket": Path("s")}))
        monkeypatch.setattr(demo, "_daemon", lambda *_: daemon)
        monkeypatch.setattr(demo, "_training", training)
        monkeypatch.setattr(demo, "_watch", watched)
        monkeypatch.setattr(demo, "_need_torch", lambda: None)
        monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
        answer = CliRunner().invoke(demo.command, ["--keep", "k"], standalone_mode=False)
        return answer, len(begun)

    return run


def test_noise_makes_a_new_training(trainings):
    answer, begun = trainings(2)

    assert (answer.return_value, begun) == (0, 3)
    assert answer.output.count("before any fault: slow") == 2


def test_noise_again_and_again_ends_with_the_reason(trainings):
    answer, begun = trainings(99)

    assert isinstance(answer.exception, PymonError)
    assert "too busy for a demo: slow" in str(answer.exception)
    assert begun == demo.TRAININGS_MAX
