import pytest


@pytest.fixture
def with_words(tmp_path):
    """A checkpoint of a model for the words w0 to w39, and the folder of its data."""
    from small_models import trained  # not above: it skips what is collected where there is no fairseq

    trained("roberta_tupe_r", tmp_path / "a.pt")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    return tmp_path
