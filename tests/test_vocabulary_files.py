"""Pieces that a vocabulary lacks."""

import math

from fairseq_relpos.vocabulary_files import split_by_merges


def test_a_long_run_of_unknown_characters_is_split():
    scores = {"ab": -1.0, "cd": -2.0}
    assert split_by_merges("abcd", {"ab", "c"}, lambda part: scores.get(part, -math.inf)) == ["ab", "c", "d"]
    assert split_by_merges("x" * 1050, {}, lambda part: -math.inf) == ["x"] * 1050
