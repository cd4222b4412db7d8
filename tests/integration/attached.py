"""A process that hands over an empty page as a trainer does, and waits; argument: the daemon's socket."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pymon.link import wire
from tests.daemon import pages

fd = pages.memfd_page()
sock = pages.connect(sys.argv[1])
pages.send(sock, wire.Hello("ab" * 16, os.getpid(), rank=0, job_id="j"), [fd])
assert isinstance(pages.receive(sock), wire.Welcome)
print("attached", flush=True)
time.sleep(300)
