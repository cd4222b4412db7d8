"""Every file of a whole host, one after the other, missing, empty, garbage, closed, or something else in its place."""

import os
import random

import pytest

from pymon.base.errors import SourceAbsent, SourceFailed
from pymon.exporters.prometheus import PrometheusRenderer
from pymon.model.snapshot import Outcome, Snapshot, State
from tests.collectors import whole
from tests.exporters.test_prometheus import STATS, families

GARBAGE = b"\xff\x00\x1b[31m \x85 9999999999999999999999 : - 7 \xe2\x80\xa8 x=y\n\n) R ( -1\n"


def missing(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(GARBAGE)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def doubled(path):
    path.write_bytes(path.read_bytes() * 2)


def folder(path):
    path.unlink()
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def scrambled(path):
    source = random.Random(str(path))
    text = bytearray(path.read_bytes() or b"\n")
    for _ in range(max(1, len(text) // 8)):
        text[source.randrange(len(text))] = source.randrange(256)
    path.write_bytes(bytes(text))


FAULTS = (missing, empty, garbage, cut, doubled, folder, pipe, scrambled)


def outcomes(tree):
    """What each collector gives at its first run, or its reason; any other exception fails the test."""
    found = []
    for name, collector in whole.collectors(tree).items():
        try:
            found.append(Outcome(name, State.OK, 0.0, collector.collect()))
        except SourceAbsent as err:
            found.append(Outcome(name, State.ABSENT, 0.0, None, str(err)))
        except SourceFailed as err:
            found.append(Outcome(name, State.FAILED, 0.0, None, str(err)))
    return found


def page(found):
    text = (
        PrometheusRenderer(series_max=10_000)
        .render(Snapshot(0, 0, tuple(found)), (), STATS)
        .decode()
    )
    families(text)  # it can be parsed
    assert "nan" not in text.lower().replace("nanosecond", "")
    assert " -" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
    return text


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_file_costs_only_what_is_read_from_it(tmp_path, fault, version):
    tree = whole.tree(tmp_path / "host", version)
    healthy = {outcome.collector: outcome for outcome in outcomes(tree)}
    assert {outcome.state for outcome in healthy.values()} == {State.OK}
    paths = whole.files(tree)
    assert len(paths) > 100

    for name in paths:
        path = tree.folder / name
        before = path.read_bytes()
        fault(path)
        found = outcomes(tree)
        page(found)
        worse = {one.collector for one in found if one.section != healthy[one.collector].section}
        assert len(worse) <= 5, (
            name,
            worse,
        )  # a process's stat or status serves that many subjects
        if name.startswith("sys/class") or name.startswith("proc/pressure"):
            assert len(worse) <= 1, (name, worse)
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(before)
    assert {outcome.state for outcome in outcomes(tree)} == {State.OK}


@pytest.mark.parametrize(
    "code", [1, 5, 13, 19, 22, 95]
)  # EPERM EIO EACCES ENODEV EINVAL EOPNOTSUPP
def test_each_file_that_may_not_or_cannot_be_read(tmp_path, monkeypatch, code):
    tree = whole.tree(tmp_path / "host")
    real_open, closed, told = os.open, [], set()

    def refuse(path, *args, **more):
        if str(path) in closed:
            raise OSError(code, os.strerror(code), str(path))
        return real_open(path, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    for name in whole.files(tree):
        closed[:] = [str(tree.folder / name)]
        found = outcomes(tree)
        page(found)
        absences = [one for outcome in found for one in getattr(outcome.section, "absent", ())]
        reasons = [outcome.reason for outcome in found if outcome.reason] + [
            one.example for one in absences
        ]
        for reason in reasons:
            if os.strerror(code) in reason:
                assert closed[0] in reason  # it says which file
                told.add(closed[0])
    assert len(told) > 30


def test_folders_that_vanish_one_after_the_other(tmp_path):
    tree = whole.tree(tmp_path / "host")
    folders = {str((tree.folder / name).parent) for name in whole.files(tree)}
    for name in sorted(folders, key=len, reverse=True):
        for path in os.scandir(name):
            os.unlink(path) if not path.is_dir() else None
        if not os.listdir(name):
            os.rmdir(name)
        page(outcomes(tree))


def test_five_hundred_processes_with_hostile_names(tmp_path):
    tree = whole.tree(tmp_path / "host")
    source = random.Random(7)
    for pid in range(1000, 1500):
        name = bytes(source.randrange(1, 256) for _ in range(15))
        arguments = ("\x1b]0;x", 'a"b\n' * 10)
        path = "".join(chr(source.choice((34, 92, 27, 0x2028, 0x202E, 97))) for _ in range(40))
        tree.process(
            pid, name, parent=70, arguments=arguments, cgroup=f"0::/{path}\n", uid=0, state="D"
        )
    tree.write("proc/70/task/70/children", " ".join(map(str, range(1000, 1500))))

    text = page(outcomes(tree))
    labels = "".join(line for line in text.splitlines() if not line.startswith("#"))
    assert labels.isprintable()
    assert max(map(len, text.splitlines())) < 2000
    assert len(text.splitlines()) < 1000
