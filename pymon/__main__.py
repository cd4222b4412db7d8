"""`python -m pymon` is the command `pymon`."""

from pymon.cli import main

if __name__ == "__main__":
    main()
