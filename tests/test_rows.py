"""Offset -> row functions against the public code's numbers and their definitions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_relpos.rows import Clipped, LogBuckets

GOLDEN = np.load(Path(__file__).parent / "fixtures/golden/t5_buckets.npz")


@pytest.mark.parametrize("setting", [name for name in GOLDEN.files if name.startswith("nb")])
def test_log_buckets_equal_the_public_t5_code(setting):
    num_buckets, max_distance, side = setting.split("_")
    rows = LogBuckets(int(num_buckets[2:]), int(max_distance[2:]), causal=side == "causal")
    offsets = torch.from_numpy(GOLDEN["relative_position"].astype(np.int64))
    assert rows(offsets).tolist() == GOLDEN[setting].tolist()


@pytest.mark.parametrize("rows", [Clipped(3), LogBuckets(8, 20), LogBuckets(7, 20, causal=True)])
def test_rows_stay_within_their_count(rows):
    found = rows(torch.arange(-1000, 1001))
    assert 0 <= found.min() and found.max() == rows.count - 1


def test_clipped_gives_each_offset_up_to_k_its_own_row():
    assert Clipped(2)(torch.tensor([-9, -2, -1, 0, 1, 2, 9])).tolist() == [0, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: LogBuckets(31, 128), "even"),
        (lambda: LogBuckets(1, 128, causal=True), "at least 2"),
        (lambda: LogBuckets(32, 8), "must exceed the 8"),
        (lambda: LogBuckets(32, 16, causal=True), "must exceed the 16"),
        (lambda: Clipped(0), "at least 1"),
    ],
)
def test_impossible_settings_are_refused(make, what):
    with pytest.raises(ValueError, match=what):
        make()


@pytest.mark.parametrize("causal", [False, True])
def test_smallest_settings_work(causal):
    assert LogBuckets(2, 9, causal)(torch.tensor([-8, 0, 8])).tolist() == ([1, 0, 0] if causal else [0, 0, 1])
