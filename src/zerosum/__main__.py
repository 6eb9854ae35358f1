"""`python -m zerosum`: the command line, where its script is not on the path."""

from zerosum.cli import main

if __name__ == "__main__":
    main()
