"""Speed of CTranslate2, float32 and int8, against fairseq's generator, with a trained translator.

    python benchmarks/serving.py --checkpoint checkpoint_best.pt --data data-bin
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

Both translate the same sentences of the data with the same beam, in batches of the same size sorted by length.
fairseq's batches are padded beforehand, as fairseq-generate's workers do; CTranslate2 gets words. All take their turn
in each round of one process; the ratio of a round is taken within it. Tokens are those of the translations, </s>
included. "Others" are float32's or int8's translations that differ from fairseq's, with the largest difference of the
scores (a mean log-probability, in nats). Seconds are CPU time with one thread, so that a busy machine counts for less.
"""

import argparse
import itertools
import logging
import statistics
import tempfile
from argparse import Namespace
from pathlib import Path

import ctranslate2
import torch
from fairseq import checkpoint_utils
from result_file import add_result, save
from turns import clock_of, compared, in_turns

from fairseq_relpos import register
from fairseq_relpos.exchange import to_ctranslate2

FAIRSEQ = "fairseq"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of its data")
    parser.add_argument("--subset", default="test")
    parser.add_argument("--sentences", type=int, default=200, help="the first ones of the subset")
    parser.add_argument("--batch", type=int, default=32, help="sentences")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--compute-types", nargs="+", default=["float32", "int8"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)
    register()
    ours = Fairseq(args)
    with tempfile.TemporaryDirectory() as folder:
        to_ctranslate2.export(args.checkpoint, Path(folder, "model"), args.data)
        theirs = {kind: CTranslate2(Path(folder, "model"), kind, ours, args) for kind in args.compute_types}
        translators = {FAIRSEQ: ours, **{f"CTranslate2, {kind}": translator for kind, translator in theirs.items()}}
        clock = clock_of(args.threads)
        report(in_turns(translators, args.rounds, lambda translator: seconds(translator, clock)), translators, args)


def seconds(translator, clock):
    start = clock()
    translator.translate()
    return clock() - start


class Fairseq:
    """fairseq's generator. translations: {number of a sentence: its words}."""

    def __init__(self, args):
        paths, data = [str(args.checkpoint)], {"data": str(args.data)}
        self.models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides=data)
        for model in self.models:
            model.eval().prepare_for_inference_(Namespace(generation=Namespace(beam=args.beam)))
        self.task.load_dataset(args.subset)
        dataset = self.task.dataset(args.subset)
        numbers = [number for number in dataset.ordered_indices().tolist() if number < args.sentences]
        self.batches = [dataset.collater([dataset[i] for i in batch]) for batch in in_batches(numbers, args.batch)]
        words = self.task.source_dictionary
        self.sources = {i: [words[token] for token in dataset[i]["source"].tolist()[:-1]] for i in numbers}
        self.longest = self.models[0].max_decoder_positions() - 1
        self.generator = self.task.build_generator(self.models, Namespace(beam=args.beam))
        self.translations, self.scores = {}, {}

    def translate(self):
        words = self.task.target_dictionary
        for batch in self.batches:
            found = self.task.inference_step(self.generator, self.models, batch)
            for number, (best, *_) in zip(batch["id"].tolist(), found):
                self.translations[number] = [words[token] for token in best["tokens"].tolist()[:-1]]
                self.scores[number] = best["score"].item()


def in_batches(numbers, size):
    rest = iter(numbers)
    return iter(lambda: list(itertools.islice(rest, size)), [])


class CTranslate2:
    """An exported model, and fairseq's sentences for it."""

    def __init__(self, folder, kind, fairseq, args):
        self.translator = ctranslate2.Translator(str(folder), compute_type=kind, intra_threads=args.threads)
        self.sources = fairseq.sources
        self.how = {"beam_size": args.beam, "max_batch_size": args.batch, "max_input_length": 0, "return_scores": True}
        self.how["max_decoding_length"] = min(200, fairseq.longest)  # as fairseq-generate
        self.translations, self.scores = {}, {}

    def translate(self):
        results = self.translator.translate_batch(list(self.sources.values()), **self.how)
        self.translations = {i: result.hypotheses[0] for i, result in zip(self.sources, results, strict=True)}
        self.scores = {i: result.scores[0] for i, result in zip(self.sources, results, strict=True)}


def report(times, translators, args):
    expected, scores = translators[FAIRSEQ].translations, translators[FAIRSEQ].scores
    rows = []
    for name, translator in translators.items():
        found = translator.translations
        tokens = sum(len(words) + 1 for words in found.values())
        others = {i: abs(translator.scores[i] - scores[i]) for i in expected if found[i] != expected[i]}
        rows.append(
            {
                "translator": name,
                "tokens_per_second": tokens / statistics.median(times[name]),
                **compared(times[FAIRSEQ], times[name]),
                "same": 1 - len(others) / len(expected),
                "others": others,
            }
        )
    save("serving", args, rows, ["ctranslate2"])


if __name__ == "__main__":
    main()
