"""The own ABI prefixes of csrc/gpu against NVIDIA's headers of every release that has its own records."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.build import ROOT, SOURCE
from tests.native.cupti_wheels import RELEASES, headers_of

OURS = ROOT / "csrc" / "gpu"
CHECKS = SOURCE / "abi.cpp"
PM_CHECKS = SOURCE / "pm_abi.cpp"
PM_RELEASES = [release for release in RELEASES if release != "12.4"]  # none in it yet
# Our records, and the kind of activity whose comment in cupti_activity.h names NVIDIA's.
KINDS = {
    "Kernel": "CONCURRENT_KERNEL",
    "Memcpy": "MEMCPY",
    "MemcpyPeer": "MEMCPY2",
    "Memset": "MEMSET",
    "Synchronization": "SYNCHRONIZATION",
}
TOOLKITS = sorted({path.resolve() for path in Path("/usr/local").glob("cuda*/include")})

pytestmark = [
    pytest.mark.timeout(600),  # the first time it downloads
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs apt-get install g++"),
]


@pytest.fixture
def compiled(tmp_path):
    # cupti_activity.h asks for the runtime's vector types and uses none; they would want yet another wheel.
    (tmp_path / "builtin_types.h").touch()

    def compile_against(
        headers: Path, csrc: Path = OURS.parent, checks: Path = CHECKS
    ) -> subprocess.CompletedProcess[str]:
        records = [f"-DTheir{ours}={record_of(headers, kind)}" for ours, kind in KINDS.items()]
        folders = [f"-I{tmp_path}", f"-isystem{headers}", f"-I{csrc}"]
        command = ["g++", "-std=c++17", "-fsyntax-only", *records, *folders, str(checks)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return compile_against


def record_of(headers: Path, kind: str) -> str:
    """The newest record that a kind's buffers hold, as its comment says."""
    text = (headers / "cupti_activity.h").read_text(errors="replace")
    pattern = rf"\\ref[\s*]+(CUpti_\w+)\.[\s*]*\*/\s*CUPTI_ACTIVITY_KIND_{kind}\s*="
    (record,) = re.findall(pattern, text)
    return str(record)


@pytest.mark.parametrize("release", RELEASES)
def test_prefixes_agree_with_the_headers_of(release, compiled):
    done = compiled(headers_of(release))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("release", PM_RELEASES)
def test_pm_sampling_agrees_with_the_headers_of(release, compiled):
    done = compiled(headers_of(release), checks=PM_CHECKS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("toolkit", TOOLKITS or [None], ids=str)
def test_prefixes_agree_with_the_toolkit_of_this_machine(toolkit, compiled):
    if toolkit is None or not (toolkit / "cupti_activity.h").exists():
        pytest.skip("no CUDA toolkit with CUPTI here; none is needed")
    done = compiled(toolkit)
    assert done.returncode == 0, done.stderr[-3000:]


def declared(records: str, *namespaces: str) -> list[str]:
    """What csrc/gpu declares, as the checks must spell it: `Kernel, start,` and `cupti::kMemcpy,`."""
    text = re.sub(r"//.*", "", (OURS / records).read_text())
    found = []
    for struct, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S):
        for declaration in re.findall(r"^  (?:const )?\w+\** (.+?);", body, re.M):
            names = (re.sub(r"\[\d+\]", "", name).strip() for name in declaration.split(","))
            found += [f"{struct}, {name}," for name in names if not name.startswith("unused")]
    found = [name for name in found if not name.startswith(("Api,", "CudaApi,"))]
    for namespace in namespaces:
        text = re.sub(r"//.*", "", (OURS / f"{namespace}_abi.h").read_text())
        for body in re.findall(r"enum[^{;]*\{(.*?)\}", text, re.S):
            found += [f"{namespace}::{name}," for name in re.findall(r"\b(k[A-Z]\w*) =", body)]
    return found


@pytest.mark.parametrize(
    ("path", "records", "namespaces", "at_least"),
    [
        (CHECKS, "cupti_abi.h", ("cupti", "cuda"), 80),
        (PM_CHECKS, "pm_abi.h", ("pm",), 120),
    ],
)
def test_all_that_is_declared_is_compared(path, records, namespaces, at_least):
    checks = path.read_text()
    names = declared(records, *namespaces)
    assert len(names) > at_least
    assert [name for name in names if f"({name}" not in checks] == []


@pytest.mark.parametrize(
    ("header", "right", "wrong", "named"),
    [
        ("cupti_abi.h", "kConcurrentKernel = 10", "kConcurrentKernel = 11", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"),
        ("cupti_abi.h", "uint8_t launch_type, unused1[7]", "uint8_t unused1[7], launch_type", "Kernel.launch_type"),
        ("cupti_abi.h", "uint32_t kind, type;\n", "uint64_t kind, type;\n", "Synchronization.type"),
        ("cupti_abi.h", "shmem_limit, graph;", "shmem_limit, graph, more[23];", "Kernel is longer"),
        ("cupti_abi.h", "cuptiActivityEnable, (uint32_t)", "cuptiActivityEnable, (void*)", "cuptiActivityEnable"),
        ("cupti_abi.h", "uint32_t, size_t*))", "uint32_t, uint32_t*))", "cuptiActivityGetNumDroppedRecords"),
        ("cupti_abi.h", "uint8_t* buffer, size_t bytes,", "uint8_t* buffer,", "cuptiActivityRegisterCallbacks"),
        ("cuda_abi.h", "kNotReady = 600", "kNotReady = 601", "CUDA_ERROR_NOT_READY"),
        ("cuda_abi.h", "cuEventQuery, (Event)", "cuEventQuery, (Event, int)", "cuEventQuery"),
        ("cuda_abi.h", "(float*, Event, Event)", "(double*, Event, Event)", "cuEventElapsedTime"),
        ("pm_abi.h", "kStopEndOfRecords = 2", "kStopEndOfRecords = 3", "CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END"),
        ("pm_abi.h", "uint32_t trigger;\n  uint32_t append;", "uint32_t append, trigger;", "SetConfig."),
        ("pm_abi.h", "offsetof(DecodeData, overflow) + 1", "sizeof(DecodeData)", "DecodeData has another size"),
        ("pm_abi.h", "cuptiPmSamplingStop, (Stop*)", "cuptiPmSamplingStop, (Stop)", "cuptiPmSamplingStop"),
    ],
)  # fmt: skip
def test_a_wrong_prefix_does_not_compile(tmp_path, compiled, header, right, wrong, named):
    headers = headers_of("13.0")
    shutil.copytree(OURS, tmp_path / "gpu")
    text = (tmp_path / "gpu" / header).read_text()
    assert text.count(right) == 1
    # Without their own assertions, which would see most of these first.
    text = re.sub(r"^static_assert.*\n", "", text.replace(right, wrong), flags=re.M)
    (tmp_path / "gpu" / header).write_text(text)
    done = compiled(headers, tmp_path, PM_CHECKS if header == "pm_abi.h" else CHECKS)
    assert done.returncode != 0
    assert f"static assertion failed: {named}" in done.stderr
