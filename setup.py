"""Builds the two compiled modules and puts `pymon.pth` into the wheel; all else is in pyproject.toml.

PYMON_NATIVE=auto (default) builds where a compiler is and installs without one, `require` fails without one,
`skip` never builds. What is absent says so at run time (`pymon.native.tools()`, `probe()`).
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

try:
    from pybind11.setup_helpers import Pybind11Extension, build_ext
except ImportError:  # `pip install --no-build-isolation` without pybind11
    Pybind11Extension, build_ext = None, None

MODE = os.environ.get("PYMON_NATIVE", "auto")
if MODE not in ("auto", "require", "skip"):
    sys.exit(f"PYMON_NATIVE={MODE!r}: must be auto, require or skip")
PTH = "pymon.pth"
PTH_SOURCE = "pymon/probe/pymon.pth"


def sources(*patterns):
    return sorted(str(path) for pattern in patterns for path in Path("csrc").glob(pattern))


def headers():
    return sources("*/*.h")


def extensions():
    if MODE == "skip":
        return []
    if Pybind11Extension is None:
        if MODE == "require":
            sys.exit("PYMON_NATIVE=require, but pybind11 is not installed in the build environment")
        return []
    common = {
        "include_dirs": ["csrc"],
        "cxx_std": 17,
        "extra_compile_args": ["-O2", "-Wall", "-Wextra"],
        "depends": headers(),
        "optional": MODE == "auto",
    }
    return [
        Pybind11Extension(
            "pymon.native._probe",
            sources(
                "core/*.cpp",
                "gpu/*.cpp",
                "bind/probe*.cpp",
                "trace/json.cpp",
                "trace/flight_recorder.cpp",
            ),
            libraries=["dl"],
            **common,
        ),
        Injection(
            "pymon.native.libpymon_inject",
            sources("core/page_writer.cpp", "core/process_start.cpp", "gpu/*.cpp", "inject/*.cpp"),
            include_dirs=["csrc"],
            extra_compile_args=[
                "-std=c++17",
                "-O2",
                "-Wall",
                "-Wextra",
                "-fvisibility=hidden",
                "-fvisibility-inlines-hidden",
            ],
            # Loaded by the driver into any program: nothing of it meets that program's own C++ library.
            extra_link_args=[
                "-static-libstdc++",
                "-static-libgcc",
                "-Wl,--version-script=csrc/inject/exports.map",
                "-s",
            ],
            libraries=["dl", "pthread"],
            depends=[*headers(), "csrc/inject/exports.map"],
            optional=MODE == "auto",
        ),
        Pybind11Extension(
            "pymon.native._tools", sources("core/*.cpp", "trace/*.cpp", "bind/tools*.cpp"), **common
        ),
    ]


class Injection(Extension):
    """A plain shared library without Python in it: one file for every interpreter, under its own name."""


class BuildPyWithPth(build_py):
    """The `.pth` lies beside the package, in site-packages itself."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(PTH_SOURCE, os.path.join(self.build_lib, PTH))

    def get_outputs(self, *args, **kwargs):
        outputs = super().get_outputs(*args, **kwargs)
        return outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, PTH)]


class EditableWheelWithPth(editable_wheel):
    """An editable install gets the same `.pth` as a wheel, so that both attach the same way."""

    def _select_strategy(self, *args, **kwargs):
        strategy = super()._select_strategy(*args, **kwargs)

        class WithPth:
            def __enter__(self):
                strategy.__enter__()
                return self

            def __exit__(self, *exc):
                return strategy.__exit__(*exc)

            def __call__(self, wheel, files, mapping):
                strategy(wheel, files, mapping)
                wheel.writestr(PTH, Path(PTH_SOURCE).read_text(encoding="utf-8"))

        return WithPth()


if build_ext is not None:

    class BuildExtWithInjection(build_ext):
        """The injected library is found by its name, which so has no tag of an interpreter."""

        def get_ext_filename(self, fullname):
            if fullname.rpartition(".")[2] == "libpymon_inject":
                return os.path.join(*fullname.split(".")) + ".so"
            return super().get_ext_filename(fullname)

        def get_export_symbols(self, ext):
            return [] if isinstance(ext, Injection) else super().get_export_symbols(ext)


commands = {"build_py": BuildPyWithPth, "editable_wheel": EditableWheelWithPth}
if build_ext is not None:
    commands["build_ext"] = BuildExtWithInjection

setup(ext_modules=extensions(), cmdclass=commands)
