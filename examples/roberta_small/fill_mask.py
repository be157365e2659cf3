"""Print what a model would put in place of each <mask>: fill_mask.py CHECKPOINT DATA TEXT..."""

import os
import sys

MASK = "<mask>"
CANDIDATES = 5


def main(checkpoint, data, *texts):
    for text in texts:
        if text.count(MASK) != 1:
            sys.exit(f"{text!r}: give a text with one {MASK} in it")
    # takes seconds: after the arguments have been looked at
    from fairseq_relpos.models.roberta import RelPosRoberta

    folder, name = os.path.split(checkpoint)
    roberta = RelPosRoberta.from_pretrained(
        folder,
        name,
        data_name_or_path=os.path.abspath(data),
        bpe="sentencepiece",
        sentencepiece_model=os.path.join(data, "spm.model"),
    ).eval()
    for text in texts:
        print(text)
        for _, probability, word in roberta.fill_mask(text, topk=CANDIDATES):
            print(f"  {100 * probability:5.1f} %  {word.strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
