"""`python -m zerosum`: the command line, where its script is not on the path.

Tested in tests/test_packaging.py.
"""

from zerosum.cli import main

if __name__ == "__main__":
    main()
