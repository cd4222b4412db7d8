"""Beside dcgm-exporter: pymon's own GPU families are off, and its job labels join the other's series by UUID."""

import json
import os
import subprocess
from pathlib import Path
from shutil import which

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.collectors import whole
from tests.daemon import pages
from tests.nvml_double import standard_node, uuid_of
from tests.waiting import until

RULES = Path(__file__).parents[2] / "grafana" / "prometheus" / "jobs.rules.yml"


def job_info(text):
    """The info series of a page, as it is written there."""
    return [
        line.rpartition(" ")[0] for line in text.splitlines() if line.startswith("pymon_job_info{")
    ]


@pytest.fixture
def page(gpus, tmp_path):
    """What a daemon serves with its GPU families off, of a node on which this process trains on the first GPU."""
    tree = whole.tree(tmp_path / "host", 2, os.getpid())
    state = standard_node()
    state["gpus"][0]["processes"] = [{"pid": os.getpid(), "bytes": 1 << 30}]
    state["gpus"][1]["processes"] = []
    config = f'[host]\nproc = "{tree.proc}"\nsys = "{tree.sys}"\n[prometheus]\n'
    gpus.start(state, config + 'disabled = ["pymon_gpu_*", "pymon_mig_*"]\n')
    sock = pages.trainer(gpus.node.socket, rank=3, job_id="42")
    wanted = f'uuid="{uuid_of(0)}"'
    yield until(
        lambda: (text := gpus.scrape()) and wanted in text and text, what="the join's label"
    )
    sock.close()


def test_the_jobs_are_told_without_one_series_of_a_gpu(page):
    names = {family.name for family in text_string_to_metric_families(page)}

    assert "pymon_job_info" in names
    assert not [name for name in names if name.startswith(("pymon_gpu_", "pymon_mig_"))]


def test_the_example_rule_joins_what_the_page_says_with_dcgms_series(page, tmp_path):
    if which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    dcgm = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="{uuid_of(gpu)}",gpu="{gpu}"}}' for gpu in (0, 1)]
    series = [{"series": one, "values": "50x5"} for one in dcgm]
    series += [{"series": one, "values": "1x5"} for one in job_info(page)]
    user = page.partition('user="')[2].partition('"')[0]
    joined = f'{{UUID="{uuid_of(0)}",gpu="0",job_id="42",user="{user}"}}'
    rule = "job:dcgm_gpu_utilization:ratio"
    expected = {
        "expr": rule,
        "eval_time": "3m",
        "exp_samples": [{"labels": rule + joined, "value": 0.5}],
    }
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}
    file = tmp_path / "test.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))

    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
