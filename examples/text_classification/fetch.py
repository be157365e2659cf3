"""The texts of downloads.txt, from the network or from a folder:

python fetch.py LIST FOLDER OFFLINE FILE...      -> FOLDER/FILE, for every FILE
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import fetch

if __name__ == "__main__":
    list_path, folder, offline, *names = sys.argv[1:]
    fetch(list_path, folder, offline, names)
