"""fairseq_relpos.atomic_files without its package, with which torch and fairseq would come: seconds, and
300 MB in every process."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location(
    "relpos_files_alone", Path(__file__).resolve().parents[2] / "fairseq_relpos" / "atomic_files.py"
)
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
whole_file = files.whole_file
