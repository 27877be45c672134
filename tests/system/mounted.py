"""The `perdure` command where the system's table of mounts is another one.

python -P mounted.py MOUNTS perdure serve ...
"""

import sys
from pathlib import Path

from perdure.ambient import file_system
from perdure.cli.main import main

if __name__ == "__main__":
    file_system.MOUNTS = Path(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    main()
