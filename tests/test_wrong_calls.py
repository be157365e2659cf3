"""A few of the wrong calls of benchmarks/wrong_calls.py, one of each kind."""

import sys
from pathlib import Path

import pytest

import fairseq_relpos

sys.path.append(str(Path(fairseq_relpos.__file__).parents[1] / "benchmarks"))

import wrong_calls  # noqa: E402
from wrong_call_kinds import KINDS  # noqa: E402


@pytest.mark.slow
def test_a_wrong_call_of_each_kind_ends_in_one_line_and_leaves_nothing(tmp_path):
    calls = wrong_calls.judged(range(len(KINDS)), seed=1, folder=tmp_path, try_all_without=False)
    for number, call, done, finding in calls:
        assert not finding, f"{number} {call.base} {call.what}: {finding}\n{done.errors}"
