"""``python -m vfsl``."""

from vfsl.cli.main import main

if __name__ == "__main__":
    main()
