"""Files of fairseq_relpos without the package, with which torch and fairseq would come: seconds, and
300 MB in every process."""

import importlib.util
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "fairseq_relpos"


def alone(file):
    spec = importlib.util.spec_from_file_location(f"relpos_{Path(file).stem}_alone", PACKAGE / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


whole_file = alone("atomic_files.py").whole_file
machine = alone("reports/machine.py").describe
NO_SETTING = alone("reports/training_log.py").NO_SETTING
