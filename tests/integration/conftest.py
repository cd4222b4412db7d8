import pytest

from tests.integration.node import Node


@pytest.fixture
def node(tmp_path):
    """A node with nothing on it; what a test starts there ends with the test."""
    pytest.importorskip("torch", reason="torch is not installed")
    node = Node(tmp_path)
    yield node
    node.end()
