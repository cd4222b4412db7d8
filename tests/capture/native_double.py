"""A double of the part of `pymon.native._probe` that captures use, in Python."""

import functools
import sys
import time


class NativeDouble:
    def __init__(self):
        self.callback = None
        self.capturing = False
        self.steps = 0
        self.profiled = []
        self._sites = {}

    def set_step_callback(self, callback):
        self.callback = callback

    def set_capturing(self, on):
        self.capturing = on

    def boundary(self):
        """What the optimizer hook does at the end of a step."""
        self.steps += 1
        if self.capturing:
            self.profiled.append(self.steps)
        if self.callback is not None:
            self.callback(self.steps)

    def CallTimer(self, original, name):
        sites = self._sites

        @functools.wraps(original)
        def timed(*args, **kwargs):
            began_ns = time.perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                took_ns = time.perf_counter_ns() - began_ns
                code = sys._getframe(1)
                key = (name, code.f_code.co_filename, code.f_lineno, code.f_code.co_name)
                calls, total_ns, max_ns = sites.get(key, (0, 0, 0))
                sites[key] = (calls + 1, total_ns + took_ns, max(max_ns, took_ns))

        return timed

    def call_sites(self):
        return [(*key, *sums) for key, sums in self._sites.items()]

    def clear_call_sites(self):
        self._sites.clear()
