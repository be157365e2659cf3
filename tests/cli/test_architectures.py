"""The list of architectures that works without fairseq says what fairseq registers."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from small_models import transformer

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.architectures import FAMILIES, architectures_of, find_architecture
from fairseq_relpos.cli.params import count
from fairseq_relpos.encodings import ENCODINGS, names_for


def test_every_registered_architecture_is_listed_and_the_other_way_round():
    registered = {arch for arch, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_relpos")}
    listed = {arch for name in ENCODINGS for arch in architectures_of(name)}
    # registered as well are those that say in one line which stacks the encoding serves
    refused = {arch for arch in registered - listed if refusal_of(arch)}
    assert registered == listed | refused and refused == {
        f"{family}_{name}{ending}"
        for name in set(ENCODINGS) - set(names_for(causal=False))
        for family, (stacks, sizes) in FAMILIES.items()
        if not any(stack.causal for stack in stacks)
        for ending in sizes
    }


def refusal_of(arch):
    """The line in which the architecture function, and params, refuse it."""
    lines = []
    for call in (lambda: ARCH_CONFIG_REGISTRY[arch](Namespace(arch=arch)), lambda: count(arch, 20)):
        with pytest.raises(ValueError) as error:
            call()
        lines.append(str(error.value))
    name = lines[1].split()[0]
    assert lines[0].startswith(f"--arch {arch}: {lines[1]}; choose another encoding here, or --arch transformer_{name}")
    return lines[1] == f"{name} serves causal stacks alone, such as a decoder: {ENCODINGS[name].causal_only}"


@pytest.mark.parametrize("arch", architectures_of("t5"))
def test_sizes_are_those_of_the_architecture_function(arch):
    name, stacks, size = find_architecture(arch)
    assert name == "t5"
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    for stack in stacks:
        side = "decoder" if stack.causal else "encoder"
        assert size.layers_of(stack) == getattr(args, f"{side}_layers")
        assert size.embed_dim == getattr(args, f"{side}_embed_dim", getattr(args, "encoder_embed_dim", None))
        assert size.heads == getattr(args, f"{side}_attention_heads")


@pytest.mark.parametrize("name", ["t5", "shaw", "deberta", "tupe_r", "kerple_log"])
def test_counts_are_what_the_model_has_more_than_without_positions(name):
    _, sizes = FAMILIES["transformer"]
    size = sizes["_iwslt_de_en"]
    settings = {"encoder_embed_dim": size.embed_dim, "max_source_positions": 20, "max_target_positions": 20}
    for side in ("encoder", "decoder"):
        settings |= {f"{side}_layers": size.layers, f"{side}_attention_heads": size.heads}

    def parameters(encoding):
        model = transformer(f"transformer_{encoding}_iwslt_de_en", **settings)
        return sum(p.numel() for p in model.parameters())

    more = parameters(name) - parameters("none")
    assert count(f"transformer_{name}_iwslt_de_en", 20)["model"] == more
