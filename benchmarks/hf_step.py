"""Time of one training step of roberta_NAME in fairseq, of the same model in transformers, and of transformers' own
RoBERTa (sdpa) of the same size.

    python benchmarks/hf_step.py --encodings tupe_r shaw --rounds 30

A step is that of train_step.py. All models are stepped in turn, round after round, in another order each time; ratios
are taken within a round, and their median is printed. Seconds are CPU time with one thread.
"""

import argparse
import statistics

import torch
import transformers
from train_step import MaskedLMStep
from turns import in_turns, median_ratio

import fairseq_relpos.hf  # noqa: F401  registers the models
from fairseq_relpos.exchange.to_transformers import Kind, as_transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encodings", nargs="+", default=["tupe_r", "shaw"])
    for name, value in {"layers": 4, "dim": 256, "heads": 4, "length": 128, "batch": 8, "vocabulary": 8000}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    vars(args).update(ffn=4 * args.dim, backend="auto", torch_compile=False, unpad=False, padding=0.0, amp=False)
    vars(args).update(device="cpu", dtype="float32", threads=1)
    torch.set_num_threads(1)
    print("| encoding | fairseq (s) | transformers (s) | speed in fairseq's | in that of transformers' RoBERTa |")
    print("|---|---|---|---|---|")
    for name in args.encodings:
        ours = MaskedLMStep(f"roberta_{name}", args.dropout, args)
        model = as_transformers(ours.model, ours.model.args, Kind("AutoModelForMaskedLM"), None)
        steps = {
            "fairseq": ours,
            "transformers": TransformersStep(ours, model),
            "stock": TransformersStep(ours, stock(model.config, args)),
        }
        steps["transformers"].model.config.sparse_prediction = True  # as fairseq's model in training
        seconds = in_turns(steps, args.rounds, lambda step: step(), desc=name)
        speeds = [median_ratio(seconds[other], seconds["transformers"]) for other in ("fairseq", "stock")]
        medians = [statistics.median(seconds[kind]) for kind in ("fairseq", "transformers")]
        print("| {} | {:.3f} | {:.3f} | {:.2f} | {:.2f} |".format(name, *medians, *speeds))


def stock(config, args):
    """transformers' own RoBERTa of this size."""
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    settings = {name: getattr(config, name) for name in same}
    settings |= {"hidden_dropout_prob": args.dropout, "attention_probs_dropout_prob": args.dropout}
    settings |= {"max_position_embeddings": args.length + 2, "attn_implementation": "sdpa"}
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**settings))


class TransformersStep(MaskedLMStep):
    """The step of another one, with its batch, for a model of transformers."""

    def __init__(self, other, model):
        self.model, self.clock, self.autocast = model.train(), other.clock, other.autocast
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.tokens, self.real = other.tokens, other.tokens.ne(other.symbols.pad()).long()
        self.labels = other.tokens.masked_fill(~other.masked, -100)

    def loss(self):
        return self.model(input_ids=self.tokens, attention_mask=self.real, labels=self.labels).loss


if __name__ == "__main__":
    main()
