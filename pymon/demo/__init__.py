"""The training that `pymon demo` watches: an ordinary script that knows nothing of pymon."""
