import pytest

from tests.integration.gpus import Gpus
from tests.integration.node import Node


@pytest.fixture
def node(tmp_path):
    """A node with nothing on it; what a test starts there ends with the test."""
    pytest.importorskip("torch", reason="torch is not installed")
    node = Node(tmp_path)
    yield node
    node.end()


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A node whose daemon reads the double of the driver's library; both end with the test."""
    gpus = Gpus(tmp_path, monkeypatch)
    yield gpus
    gpus.node.end()
