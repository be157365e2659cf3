"""python -m fairseq_relpos.finetuning.encoder_start ROBERTA OUT [flags of fairseq-train]

Writes OUT, a checkpoint for --finetune-from-model of this very training: the encoder is that of the checkpoint
ROBERTA, and all else has the weights that the training with these flags would begin with. The encoder keeps fixed
positions (``--position-stacks decoder``), learned or sinusoidal, as the RoBERTa had them.
"""

from collections.abc import Sequence
from typing import Any

from ..checkpoints import warm_start
from ..checkpoints.fitting import what_does_not_fit
from ..checkpoints.starting_point import check_paths, save
from ..signature import KEY
from .errors import run_program

#: settings that have to be equal, and what a RoBERTa has that does not say
ALIKE = {
    "encoder_layers": 12,
    "encoder_embed_dim": 768,
    "encoder_ffn_embed_dim": 3072,
    "encoder_attention_heads": 12,
    "encoder_normalize_before": False,
    "activation_fn": "gelu",
    "layernorm_embedding": True,
    "no_scale_embedding": True,
}
PREFIX = "encoder.sentence_encoder."


def start(source: str, target: str, flags: Sequence[str]) -> str:
    """Writes ``target``; returns what there is to tell. Raises ValueError, one line, before anything is written."""
    from fairseq import options, tasks, utils
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    check_paths(source, target)
    state = warm_start.read(source)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), list(flags)))
    refuse_another_encoder(source, state["cfg"].model, cfg.model)
    utils.set_torch_seed(cfg.common.seed)
    model: Any = tasks.setup_task(cfg.task).build_model(cfg.model)
    weights = encoder_weights(state["model"])
    try:
        # which RoBERTas of fairseq before 0.10 lack
        model.encoder.load_state_dict({"version": model.encoder.version, **weights})
    except RuntimeError as error:
        raise ValueError(f"{source}: {what_does_not_fit(str(error), model.encoder)}") from None
    save(target, cfg, cfg.model, model)
    told = f"{sum(tensor.numel() for tensor in weights.values()):,} numbers of the encoder are those of {source}"
    epsilon = getattr(state["cfg"].model, "layer_norm_eps", None)
    if epsilon not in (None, 1e-5):
        told += f"; its layer_norm_eps is {epsilon}, here it is 1e-05, as in every Transformer of fairseq"
    return told


def refuse_another_encoder(source: str, theirs: Any, ours: Any) -> None:
    """Raises ValueError where the encoder to train is not that of the checkpoint."""
    named = getattr(ours, "position_stacks", None) or "encoder,decoder"
    if named != "decoder":
        raise ValueError(f"--position-stacks {named}: the encoder of {source} keeps its own positions; give decoder")
    learned = getattr(theirs, "encoder_learned_pos", True)  # which RoBERTas of fairseq before 0.10 do not say
    positions = getattr(theirs, "position_encoding", None) or ("sinusoidal" if learned is False else "learned")
    here = "learned" if ours.encoder_learned_pos else "sinusoidal"
    if positions != here:
        advice = {"learned": "give --encoder-learned-pos", "sinusoidal": "leave --encoder-learned-pos out"}
        raise ValueError(
            f"{source} has the positions {positions}, the encoder to train has {here} ones: "
            f"{advice.get(positions, 'give a RoBERTa with learned or sinusoidal positions')}"
        )
    alike = {**ALIKE, "max_positions": 512} if here == "learned" else ALIKE
    differing = []
    for name, usual in alike.items():
        its = getattr(theirs, name, None)
        its = usual if its is None else its
        name = "max_source_positions" if name == "max_positions" else name
        if getattr(ours, name) != its:
            differing.append(f"{name} {its}, not {getattr(ours, name)}")
    if differing:
        raise ValueError(
            f"{source} has another encoder than the one to train: {'; '.join(differing)}: give its settings"
        )


def encoder_weights(weights: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the encoder, by their names in a Transformer; fairseq before 0.10 had other names."""
    found = {}
    for key, tensor in weights.items():
        key = key.replace("decoder.sentence_encoder.", PREFIX).replace("emb_layer_norm", "layernorm_embedding")
        if key.startswith(PREFIX) and not key.endswith(KEY):
            found[key.removeprefix(PREFIX)] = tensor
    return found


def main(arguments: Sequence[str]) -> None:
    source, target, *flags = arguments
    print(start(source, target, flags))


if __name__ == "__main__":
    run_program(main)
