"""Hyperparameters that an encoding cannot serve, or that would change nothing, are an error that names them."""

import pytest
from loops import CAUSAL, DIMS

from fairseq_relpos.encodings import Dims, build

REFUSED = [
    ("at5", {"length": "soon"}, "length=soon"),
    ("at5", {"hidden": "3"}, "two sizes"),
    ("at5", {"gamma_min": 9, "gamma_max": 2}, "exceeds"),
    ("at5", {"activation": "gelu"}, "relu or sigmoid or tanh"),
    ("cope", {}, "cope serves causal stacks alone, such as a decoder: it counts the tokens"),
    ("dape", {"bias": "rope"}, "bias=rope of dape is not kerple_log or"),
    ("dape", {"hidden": 0}, "hidden=0"),
    ("deberta", {"max_distance": 0}, "max_distance=0: the clip distance must be at least 1 token"),
    ("pope", {"base": 0}, "base=0"),
    ("rope", {"factor": 4}, "factor=4 changes nothing: add scaling=interpolation, ntk or yarn"),
    ("rope", {"scaling": "ntk"}, "scaling=ntk with factor=1: give a factor above 1"),
    ("rope", {"scaling": "yarn", "factor": 2}, "scaling=yarn with trained_length=None: give the length"),
    ("rope", {"scaling": "yarn", "factor": 2, "trained_length": 0}, "scaling=yarn with trained_length=0: give the"),
    ("rope", {"scaling": "yarn", "factor": 2, "trained_length": 9, "base": 1}, "with base=1: a base above 1"),
    ("rope", {"scaling": "linear", "factor": 2}, "scaling=linear of rope is not none or interpolation or ntk or yarn"),
    ("sandwich", {"width": -2}, "sandwich: width=-2 must be even and positive"),
    ("sandwich", {"width": 7}, "sandwich: width=7 must be even and positive"),
    ("t5", {"nonsense": 1}, "t5 has no nonsense; it accepts num_buckets=32 max_distance=128"),
    ("t5", {"num_buckets": "many"}, "num_buckets=many of t5 is not an integer"),
    ("t5", {"num_buckets": 31}, "needs an even number"),
    ("t5", {"per_layer": "perhaps"}, "per_layer=perhaps of t5 is not True or False"),
    ("transformer_xl", {"clamp": 0}, "transformer_xl: clamp=0 must be 1 or more"),
]


@pytest.mark.parametrize("name, hparams, what", REFUSED)
def test_impossible_hyperparameters_are_refused(name, hparams, what):
    with pytest.raises(ValueError, match=what):
        build(name, DIMS, **hparams)


def test_what_other_stacks_can_have_is_refused_where_it_cannot_be():
    with pytest.raises(ValueError, match="length=input cannot serve a decoder"):
        build("at5", CAUSAL, length="input")
    with pytest.raises(ValueError, match="scaling=ntk needs 4 or more dimensions"):
        build("rope", Dims(2, 1, 9), scaling="ntk", factor=2)
