"""The steps of examples/roberta_pretraining/prepare.sh, case by case."""

import bz2
import codecs
import gzip
import io
import json
import lzma
import sys
import tarfile
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "roberta_pretraining"), str(EXAMPLES / "common")]

from preparation import binarising, cleaning, duplicates, pieces, sentences, sources, splits, vocabulary  # noqa: E402

GOOD = "This is a line of running text with more than fifty letters in all of its words."


def clean(*lines):
    counts = Counter()
    return cleaning.clean_document([line.encode() if isinstance(line, str) else line for line in lines], counts), counts


# --- a line ---


@pytest.mark.parametrize(
    "line, reason",
    [
        ("x" * 49, "shorter than 50"),
        ("x" * 50, None),
        ("x" * 1_000_000, None),
        ("x" * 1_000_001, "longer than"),
        ("x" * 49 + "." * 10, "fewer than 50 letters"),
        ("x" * 70 + "1" * 30, None),
        ("x" * 69 + "1" * 31, "less than 70%"),
        # letters are those of English
        ("é" * 60, "fewer than 50 letters"),
        ("x" * 95 + "\\" * 5, None),
        ("x" * 94 + "\\" * 6, "a formula"),
        ("x" * 95 + "|" * 5, None),
        ("x" * 94 + "|" * 6, "a table"),
        ("|" + "x" * 99, "a table"),
    ],
)
def test_what_is_no_text_is_dropped_for_a_reason(line, reason):
    found = cleaning.unfit(line)
    assert (found is None) if reason is None else reason in found


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a\tb  c\u00a0d ", "a b c d"),
        ("wait......here", "wait...here"),
        ("a,, b,.", "a, b."),
        ("see *this and * that", "see this and * that"),
        ("<<quoted>>", "«quoted»"),
    ],
)
def test_spaces_and_repeated_marks(line, expected):
    assert cleaning.spaced(line) == expected


def test_punctuation_and_control_characters_are_those_of_moses():
    (line,), counts = clean(
        "“Well”, he said – ‘it’s so’ … in\u200b this soft\u00adened line ,and afterwards "
        "there follow many words without punctuation ."
    )
    assert line.startswith("\"Well,\" he said - 'it's so' ... in this softened line")
    assert counts["lines with control characters, removed"] == 1


def test_a_line_is_normalised_alone_though_its_document_is_normalised_at_once():
    from sacremoses import MosesPunctNormalizer

    lines = [f"{GOOD} (", ") begins. “", ": 5 % of » it", " « ends ..", GOOD]
    alone = [MosesPunctNormalizer("en").normalize(cleaning.spaced(line)) for line in lines]
    together = [
        line.strip() for line in cleaning.punctuation().normalize("\n".join(map(cleaning.spaced, lines))).split("\n")
    ]
    assert together == alone


def test_bytes_that_are_not_utf8_are_left_out_and_counted():
    lines, counts = clean(GOOD.encode() + b" caf\xe9.", GOOD)
    assert lines[0].endswith("caf.") and counts["lines that were not UTF-8, mended"] == 1


def test_a_sentence_that_goes_on_in_the_next_line_is_joined():
    first, second = GOOD[:-1] + " and", "goes on in the next line. " + GOOD
    lines, counts = clean(first, second, GOOD)
    assert lines[0].startswith(f"{first} goes on") and len(lines) == 2
    assert counts["lines joined with the one before"] == 1
    assert len(clean(first, second.capitalize())[0]) == 2


# --- sentences ---


@pytest.mark.parametrize(
    "text",
    [
        "He came.|She left.",
        "Mr. Smith met J. R. Jones Jr. in the U.S. Army.|It rained.",
        "No. 5 is alive.|No.|He slept.",
        '"Was it?" she said.|"Yes!"|He left (so it was).|That was all.',
        "It cost 3.50 dollars.|1984 was a year.",
        "Wait... and see.|Then go.",
        "Was it I?|It was I.|Good.",
    ],
)
def test_sentences(text):
    assert sentences.split_sentences(text.replace("|", " ")) == text.split("|")


def test_a_sentence_without_a_word_is_dropped():
    assert sentences.split_sentences('"... ! 5." Then.') == ['5."', "Then."]
    assert sentences.split_sentences("--- !!") == []


def test_moses_does_not_escape():
    assert splits.moses('He said "it" & isn\'t it?') == 'He said " it " & isn \'t it ?'


# --- duplicates ---


def test_the_first_of_equal_lines_stays_across_blocks_and_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "TOGETHER", 3)
    folder, out = tmp_path / "cleaned", tmp_path / "duplicates"
    folder.mkdir(), out.mkdir()
    lines = [f"{GOOD[:-1]} {'abcdefgh'[n % 8]}." for n in range(20)]
    for number in range(4):
        block = sources.Block(number, "x", False, "\n\n".join(lines[5 * number : 5 * number + 5]).encode())
        cleaning.clean_block(folder, block)
    tasks = duplicates.ranges(20)
    assert len(tasks) == 7
    for task in tasks:
        duplicates.find_duplicates(folder, out, task)
    found = [number * 5 + line for number in range(4) for line in duplicates.of_block(out, number)]
    assert sorted(found) == list(range(8, 20))


# --- pieces ---


def test_short_sentences_are_joined_with_the_neighbour_that_makes_the_shortest_pair():
    given = ["One two three four five six.", "Yes.", "Seven eight nine ten eleven"]
    # 1 + 5 + 5 for the end of a sentence, against 6 + 1 + 5
    assert list(pieces.join_short(given)) == [given[0], f"{given[1]} {given[2]}"]
    assert list(pieces.join_short(["Yes."])) == ["Yes."]
    assert list(pieces.join_short([given[0], given[0]])) == [given[0], given[0]]
    long = " ".join(["word"] * 250)
    assert list(pieces.join_short([long, "Yes."])) == [long, "Yes."]


def test_a_line_of_pieces_is_cut_into_parts_that_fit():
    assert pieces.cut(list(range(10)), 10) == [list(range(10))]
    assert [len(part) for part in pieces.cut(list(range(11)), 5)] == [4, 4, 3]
    assert pieces.cut([], 5) == []


def test_complete_samples_of_fairseq_hold_the_longest_line_and_not_one_piece_more():
    from fairseq.data.token_block_dataset import TokenBlockDataset

    tokens = 64
    for line, fits in ((tokens - 2, True), (tokens - 1, False)):
        sizes = np.array([line + 1, 3, line + 1, 1])  # with </s>
        blocks, _, _ = TokenBlockDataset._build_slice_indices(sizes, "complete", 1, tokens - 1)
        assert (blocks.max() + 1 <= tokens) == fits  # with <s>


# --- vocabularies ---


def test_gpt2s_pieces_are_those_of_fairseq(tmp_path):
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    symbols = [*bytes_to_unicode().values(), "he"]
    (tmp_path / "encoder.json").write_text(json.dumps({symbol: number for number, symbol in enumerate(symbols)}))
    (tmp_path / "vocab.bpe").write_text("#version\nh e\n")
    encode = vocabulary.pieces_of.__wrapped__(tmp_path, Namespace(vocabulary="gpt2"))
    assert encode("the é")[1] == str(symbols.index("he")) and len(encode("the é")) == 5


def test_every_block_is_in_one_part_and_validation_is_whole(monkeypatch):
    monkeypatch.setattr(binarising, "TOGETHER", 3)
    parts = binarising.parts(7)
    assert [name for name, _ in parts] == ["train", "train1", "train2"]
    assert [list(blocks) for _, found in parts for split, blocks in found if split == "train"] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert [list(blocks) for _, found in parts for split, blocks in found if split == "valid"] == [list(range(7))]


# --- files ---


def read(folder, name, data):
    (folder / name).write_bytes(data)
    return list(sources.blocks(sources.files_of([folder / name])))


@pytest.mark.parametrize(
    "ending, packed", [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_plain_and_packed_files_are_the_same(tmp_path, ending, packed):
    (block,) = read(tmp_path, f"a.txt{ending}", packed(b"one\ntwo\n\r\n\nthree"))
    assert list(sources.documents(block)) == [[b"one", b"two"], [b"three"]]


def test_zst_is_read_and_one_that_is_cut_short_is_an_error(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    data = b"".join(b"line %d\n" % n for n in range(20_000))
    packed = zstandard.compress(data[:70_000]) + zstandard.compress(data[70_000:])  # two frames
    assert b"".join(block.text for block in read(tmp_path, "a.zst", packed)) == data
    for bad in (packed[:-20], b"no archive at all"):
        with pytest.raises(SystemExit, match="cut short"):
            read(tmp_path, "a.zst", bad)


@pytest.mark.parametrize("ending, packed", [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_an_archive_that_is_cut_short_or_none_is_an_error(tmp_path, ending, packed):
    for bad in (packed(b"one two three\n" * 1000)[:-10], b"no archive at all"):
        with pytest.raises(SystemExit, match="cut short"):
            read(tmp_path, f"a{ending}", bad)


def test_a_packed_tar_archive_is_not_read_as_text(tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        archive.addfile(tarfile.TarInfo("page.txt"), io.BytesIO())
    with pytest.raises(SystemExit, match="a.xz is a tar archive, packed: unpack it"):
        read(tmp_path, "a.xz", packed.getvalue())


def test_json_lines(tmp_path):
    lines = [{"title": "A", "text": "one\n\ntwo"}, {"index": 1}, {"text": "\ud800three"}]
    (block,) = read(tmp_path, "a", ("\n".join(map(json.dumps, lines)) + "\n").encode())
    assert block.is_json
    found = list(sources.documents(block))
    assert found[0] == [b"one", b"", b"two"] and len(found) == 2
    counts = Counter()
    assert cleaning.mend(found[1][0], counts) == "three" and sum(counts.values()) == 1
    # Windows may begin a file with a byte order mark
    assert read(tmp_path, "marked", codecs.BOM_UTF8 + b'{"text": "one"}\n')[0].is_json
    # text may begin with a brace
    assert not read(tmp_path, "b", b"{this} is text\n")[0].is_json


def test_blocks_have_whole_documents_whatever_the_reader_buffers(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 50)
    text = b"\n\n".join(b"document %d\nends" % n for n in range(40))
    blocks = read(tmp_path, "a", text)
    assert [block.number for block in blocks] == list(range(len(blocks))) and len(blocks) > 5
    assert [d for block in blocks for d in sources.documents(block)] == [
        [b"document %d" % n, b"ends"] for n in range(40)
    ]


def test_a_document_or_a_line_without_end_is_taken_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 100)
    monkeypatch.setattr(sources, "LONGEST_DOCUMENT", 100)
    monkeypatch.setattr(sources, "LONGEST_LINE", 30)
    blocks = read(tmp_path, "a", b"a line\n" * 100 + b"x" * 500)
    assert max(len(block.text) for block in blocks) < 200
    assert b"".join(block.text for block in blocks).replace(b"\n", b"") == b"a line" * 100 + b"x" * 500


def test_a_json_line_is_read_whole_however_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LONGEST_LINE", 30)
    texts = [letter * 100 for letter in "abc"]
    (block,) = read(tmp_path, "a", "\n".join(json.dumps({"text": text}) for text in texts).encode())
    assert block.is_json and [lines for (lines,) in sources.documents(block)] == [text.encode() for text in texts]


@pytest.mark.parametrize(
    "name, data", [("a", b" \n\n"), ("a.gz", gzip.compress(b"", mtime=0)), ("a.xz", lzma.compress(b"\n"))]
)
def test_a_file_without_text_is_named_before_anything_is_read(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SystemExit, match=f"{name} is empty: give text"):
        sources.files_of([tmp_path / name])


def test_a_part_that_a_killed_process_has_finished_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(binarising.corpus, "preprocess", fake_preprocess)
    for folder in ("work/pieces", "work/binarised"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "work/pieces/000000.train").write_text("a b\n")
    for _ in range(2):
        binarising.binarise(tmp_path / "work", ["train", [("train", range(1))]])
        (tmp_path / "work/binarised/train.json").unlink()  # as if it had been killed a moment before
    assert len(binarising.files(tmp_path / "work")) == 2


def fake_preprocess(log, *flags):
    folder = flags[flags.index("--destdir") + 1]
    folder.mkdir()
    for name in ("train.bin", "train.idx"):
        (folder / name).touch()
    log.touch()


def test_folders_are_read_in_the_order_of_their_names(tmp_path):
    for name in ("AB/wiki_00", "AA/wiki_01", "AA/wiki_00"):
        (tmp_path / "dump" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dump" / name).write_text("text")
    found = [str(path.relative_to(tmp_path / "dump")) for path in sources.files_of([tmp_path / "dump"])]
    assert found == ["AA/wiki_00", "AA/wiki_01", "AB/wiki_00"]
