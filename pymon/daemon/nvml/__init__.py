"""The daemon's side of NVML: worker processes that may never come back, and what is known of each GPU.

`child` is one process, `roster` what the GPUs were like when last heard of, `supervisor` decides who is given up.
"""
