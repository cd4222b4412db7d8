"""Between probe and daemon: where the socket is, what is said on it, how the page is laid out and read."""
