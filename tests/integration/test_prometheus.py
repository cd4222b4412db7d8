"""A real Prometheus scrapes a real daemon that watches a real training."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from shutil import which

import pytest

from tests.integration.node import until
from tests.waiting import PATIENCE_S

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: pymon
    static_configs: [{{targets: ["{target}"]}}]
"""
ADDRESS = re.compile(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)')


@pytest.fixture
def prometheus(tmp_path):
    if which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    started = []

    def start(target):
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(target=target))
        arguments = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
        arguments.append("--web.listen-address=127.0.0.1:0")
        log = open(tmp_path / "prometheus.log", "w+")  # noqa: SIM115 - closed with the process
        started.append((subprocess.Popen(["prometheus", *arguments], stdout=log, stderr=log), log))
        address = until(lambda: ADDRESS.search(Path(log.name).read_text()), what="its address")
        return f"http://{address[1]}"

    yield start
    for process, log in started:
        process.kill()
        process.wait()
        log.close()


def value(base, query):
    """The value of a query that has one answer; None without."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            result = json.load(answer)["data"]["result"]
    except (urllib.error.URLError, OSError):
        return None  # it is still starting
    return float(result[0]["value"][1]) if result else None


def test_it_is_up_its_steps_grow_and_promtool_finds_nothing(node, prometheus):
    node.daemon("--http", "127.0.0.1:0")
    node.train(0.01)
    base = prometheus(node.http.removeprefix("http://"))

    until(lambda: value(base, "up") == 1, what="up = 1")
    first = until(lambda: value(base, "pymon_steps_total"), what="pymon_steps_total")
    grown = f"pymon_steps_total > {first} + 20"
    until(lambda: value(base, grown), what=grown)
    until(lambda: value(base, "rate(pymon_steps_total[5s]) > 0"), what="a rate")

    with urllib.request.urlopen(f"{node.http}/metrics", timeout=PATIENCE_S) as page:
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=page.read(), capture_output=True
        )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
