"""Time of one training step of electra_NAME against the sum of its parts run alone: a step of its generator as a masked
language model, and a step of its discriminator on given replaced tokens.

    python benchmarks/electra_step.py
    python benchmarks/electra_step.py --layers 12 --dim 768 --heads 12 --generator-size 1/3 --length 128 --batch 8

All three are stepped in turn, round after round, in another order each time, so that a noisy machine slows all of them
alike; the ratio of a round is taken within that round. A step is forward, loss, backward, clipping, AdamW. Seconds are
CPU time with one thread, so that a busy machine counts for less.
"""

import argparse
import copy
import statistics
from argparse import Namespace
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from result_file import add_result, save
from train_step import vocabulary
from turns import Processes, clock_of, compared

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.criterions.electra import Electra, ElectraConfig

PARTS = ("generator alone", "discriminator alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="electra_tupe_r")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--generator-size", default="1/2")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=128, help="sequences of a step")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    add_result(parser)
    args = parser.parse_args()
    with Processes(["tuned"]) as processes:
        seconds = processes.in_turns(steps_of, (args,), args.rounds, desc=args.arch)["tuned"]
    parts = [one + other for one, other in zip(*(seconds[name] for name in PARTS))]
    rows = [{"step": name, "seconds": statistics.median(times)} for name, times in seconds.items()]
    rows[list(seconds).index(args.arch)] |= compared(seconds[args.arch], parts)
    save("electra_step", args, rows)


def steps_of(args):
    torch.set_num_threads(args.threads)
    whole = WholeStep(args)
    generator, discriminator = PARTS
    return {args.arch: whole, generator: GeneratorStep(args, whole), discriminator: DiscriminatorStep(args, whole)}


class WholeStep:
    """The step of the criterion."""

    def __init__(self, args):
        symbols = vocabulary(args.vocabulary, "<mask>")
        mask = symbols.index("<mask>")
        task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols, mask_idx=mask)
        settings = Namespace(
            arch=args.arch,
            encoder_layers=args.layers,
            encoder_embed_dim=args.dim,
            encoder_ffn_embed_dim=4 * args.dim,
            encoder_attention_heads=args.heads,
            generator_size=args.generator_size,
            max_positions=args.length,
            dropout=args.dropout,
            attention_dropout=args.dropout,
        )
        ARCH_CONFIG_REGISTRY[args.arch](settings)
        torch.manual_seed(1)
        self.model = ARCH_MODEL_REGISTRY[args.arch].build_model(settings, task).train()
        self.criterion = Electra(ElectraConfig(), task).train()
        text = torch.randint(5, mask, (args.batch, args.length))
        text[:, 0] = symbols.bos()
        masked = torch.rand(text.shape) < 0.15
        self.sample = {
            "id": torch.arange(args.batch),
            "net_input": {"src_tokens": text.masked_fill(masked, mask)},
            "target": text.masked_fill(~masked, symbols.pad()),
            "ntokens": text.numel(),
        }
        self.begin(args)

    def begin(self, args):
        # the model has both parts, and a step of one of them changes no other
        self.parameters = list(self.trained().parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        self.clock = clock_of(args.threads)

    def trained(self):
        return self.model

    def loss(self):
        loss, count, _ = self.criterion(self.model, self.sample)
        return loss / count

    def __call__(self):
        start = self.clock()
        self.optimizer.zero_grad()
        self.loss().backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return self.clock() - start


class GeneratorStep(WholeStep):
    """That of a masked language model."""

    def __init__(self, args, whole):
        self.model, self.sample = copy.deepcopy(whole.model), whole.sample
        self.masked = self.sample["target"].ne(self.model.pad)
        self.begin(args)

    def trained(self):
        table = self.model.discriminator.encoder.sentence_encoder.embed_tokens
        return torch.nn.ModuleList([self.model.generator, table])

    def loss(self):
        logits = self.model.generator(**self.sample["net_input"], masked_tokens=self.masked)[0]
        return F.cross_entropy(logits, self.sample["target"][self.masked])


class DiscriminatorStep(WholeStep):
    """That of a discriminator which reads a text with tokens that are replaced already."""

    def __init__(self, args, whole):
        self.model = copy.deepcopy(whole.model)
        tokens, target = whole.sample["net_input"]["src_tokens"], whole.sample["target"]
        self.tokens = self.model(tokens, target).tokens_BT
        self.labels = self.tokens.ne(torch.where(target.ne(self.model.pad), target, tokens)).float()
        self.begin(args)

    def trained(self):
        return torch.nn.ModuleList([self.model.discriminator, self.model.score_tokens])

    def loss(self):
        features = self.model.discriminator(self.tokens, features_only=True)[0]
        return F.binary_cross_entropy_with_logits(self.model.score_tokens(features), self.labels)


if __name__ == "__main__":
    main()
