"""``python -m shardcall`` is the ``shardcall`` command."""

from shardcall.cli import main

if __name__ == "__main__":
    main()
