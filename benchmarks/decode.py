"""Decoding speed of transformer_NAME_iwslt_de_en against stock fairseq's transformer_iwslt_de_en.

    python benchmarks/decode.py --encodings t5 shaw
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

fairseq's own generator with beam search translates one batch of left-padded sources into
outputs of a fixed length, so that every model does the same number of steps. All models
take their turn in each round of one process; the ratio of a round is taken within it.
Seconds are CPU time with one thread, so that a busy machine counts for less.
"""

import argparse
import statistics
from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from result_file import add_result, save
from train_step import vocabulary
from turns import clock_of, compared, in_turns

import fairseq_relpos.models  # noqa: F401  registers the architectures

STOCK = "transformer_iwslt_de_en"
ADDITIVE = ["none", "sinusoidal", "t5", "at5", "alibi", "fire", "tupe_r"]
CONTENT_DEPENDENT = ["shaw", "transformer_xl", "gcdf", "deberta", "m3", "m4", "m4m", "bert_ad", "rope"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=[*ADDITIVE, *CONTENT_DEPENDENT])
    parser.add_argument("--batch", type=int, default=32, help="sentences")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--source-length", type=int, default=24, help="tokens of the longest source")
    parser.add_argument("--length", type=int, default=24, help="tokens of every output")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    archs = [STOCK, *(f"transformer_{name}_iwslt_de_en" for name in args.encodings)]
    decoders = {arch: Decoding(arch, args) for arch in archs}
    report(in_turns(decoders, args.rounds, lambda decoding: decoding()), args)


class Decoding:
    def __init__(self, arch, args):
        words = vocabulary(args.vocabulary)
        settings = Namespace(
            arch=arch,
            max_source_positions=256,
            max_target_positions=256,
            share_decoder_input_output_embed=True,
            attention_backend=args.backend,
        )
        ARCH_CONFIG_REGISTRY[arch](settings)
        torch.manual_seed(1)
        task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
        self.models = [ARCH_MODEL_REGISTRY[arch].build_model(settings, task).eval()]
        self.generator = SequenceGenerator(
            self.models, words, beam_size=args.beam, min_len=args.length, max_len_b=args.length
        )
        torch.manual_seed(1)
        sources = torch.randint(4, args.vocabulary, (args.batch, args.source_length))
        sources[:, -1] = words.eos()
        lengths = torch.randint(args.source_length // 2, args.source_length + 1, (args.batch, 1))
        sources[torch.arange(args.source_length) < args.source_length - lengths] = words.pad()
        self.sample = {"net_input": {"src_tokens": sources, "src_lengths": lengths[:, 0]}}

        self.clock = clock_of(args.threads)

    def __call__(self):
        start = self.clock()
        self.generator.generate(self.models, self.sample)
        return self.clock() - start


def report(seconds, args):
    tokens = args.batch * (args.length + 1)
    rows = [
        {"arch": arch, "tokens_per_second": tokens / statistics.median(times), **compared(seconds[STOCK], times)}
        for arch, times in seconds.items()
    ]
    save("decode", args, rows)


if __name__ == "__main__":
    main()
