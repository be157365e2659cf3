"""Sentences -> lines of pieces for fairseq, none too short or too long; an empty line, one </s>, between documents.

fairseq's --sample-break-mode complete keeps lines whole. A line with more than T - 2 pieces (T tokens a sample, with
<s> and </s>) makes a sample that training refuses, so it is cut here.
"""

from collections import Counter

from fairseq_relpos.atomic_files import whole_file, write_json

from . import storage, vocabulary

SHORTEST, LONGEST = 5, 250  # words of a line that sentences are joined to
CHARACTERS = 20  # of a line that stays
ENDS = (".", '"', "!", "?")
#: added to the length of a pair whose first sentence is whole
WHOLE = 5
#: sentences that are joined among themselves: to look for the best pair takes the square of the time
TOGETHER = 200


def join_short(sentences):
    """Joins neighbours, the shortest pair first, until each sentence has SHORTEST words."""
    for start in range(0, len(sentences), TOGETHER):
        yield from join_group([sentence.split() for sentence in sentences[start : start + TOGETHER]])


def join_group(group):
    while min(map(len, group)) < SHORTEST:
        lengths = [(joined_length(*pair), number) for number, pair in enumerate(zip(group, group[1:]))]
        fitting = [pair for pair in lengths if pair[0] is not None]
        if not fitting:
            break
        number = min(fitting)[1]
        group[number : number + 2] = [group[number] + group[number + 1]]
    return [" ".join(words) for words in group]


def joined_length(first, second):
    """The pair with the smallest value is joined; None: it would be too long."""
    length = len(first) + len(second)
    if length > LONGEST:
        return None
    return length + WHOLE * first[-1].endswith(ENDS)


def cut(pieces, longest):
    """Parts of about the same length."""
    count = -(-len(pieces) // longest)
    length = -(-len(pieces) // count) if count else 0
    return [pieces[i : i + length] for i in range(0, len(pieces), length)] if count else []


def write_pieces(work, settings, task):
    """Writes the pieces of a block's sentences. task: its number and split."""
    block, split = task
    encode = vocabulary.pieces_of(work, settings)
    counts = Counter()
    with whole_file(work / "pieces" / f"{block:06}.{split}") as part:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            in_document = False
            for line in storage.lines_of(work / "sentences" / f"{block:06}.{split}"):
                if not line:
                    file.write("\n" if in_document else "")
                    in_document = False
                    continue
                for sentence in join_short(line.split("\t")):
                    if len(sentence) < CHARACTERS:
                        counts[f"{split} lines dropped: shorter than {CHARACTERS} characters"] += 1
                        continue
                    parts = cut(encode(sentence), settings.longest_line)
                    counts[f"{split} lines cut"] += len(parts) > 1
                    for pieces in parts:
                        file.write(" ".join(pieces) + "\n")
                        counts[f"{split} lines"] += 1
                        counts[f"{split} tokens"] += len(pieces) + 1  # </s>, which fairseq adds to every line
                        in_document = True
            file.write("\n" if in_document else "")
    write_json(work / "pieces" / f"{block:06}.{split}.json", counts)
    return counts
