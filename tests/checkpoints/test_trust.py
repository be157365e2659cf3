"""No command runs what is in a checkpoint, unless it is told to."""

import importlib
import os
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_relpos.checkpoints import loading
from fairseq_relpos.cli import main
from fairseq_relpos.models.roberta import RelPosRoberta  # registers the architectures, and mends

ROOT = Path(__file__).parents[2]


class RunsCode:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('was_executed').touch()",)


@pytest.fixture(autouse=True)
def without_trust(tmp_path, monkeypatch):
    """An empty folder, in which nothing is trusted."""
    monkeypatch.delenv(loading._TRUST, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.pop(loading._TRUST, None)


@pytest.fixture
def hostile():
    torch.save({"model": {}, "args": None, "extra": RunsCode()}, "hostile.pt")
    return "hostile.pt"


FAIRSEQ = {
    "validate": ["--task", "masked_lm", "--path", "hostile.pt", "--batch-size", "2"],
    "eval_lm": ["--task", "language_modeling", "--path", "hostile.pt"],
    "generate": ["--task", "translation", "--path", "hostile.pt", "-s", "a", "-t", "b"],
    "interactive": ["--task", "translation", "--path", "hostile.pt", "-s", "a", "-t", "b"],
    "train": [
        *"--restore-file hostile.pt --task masked_lm --arch roberta_t5 --criterion masked_lm".split(),
        *"--encoder-layers 1 --encoder-embed-dim 8 --encoder-ffn-embed-dim 8".split(),
        *"--encoder-attention-heads 2 --optimizer adam --lr 1 --batch-size 2 --save-dir save".split(),
    ],
}


@pytest.mark.parametrize(
    "settings",
    [
        {"args": Namespace(arch="fconv", encoder_layers="__import__('pathlib').Path('was_executed').touch()")},
        {
            "args": None,
            "cfg": {
                "model": Namespace(
                    _name="transformer_lm",
                    arch="transformer_lm",
                    adaptive_softmax_cutoff=("[open('was_executed', 'w')]"),
                )
            },
        },
    ],
)
def test_code_in_a_setting_is_not_run(settings):
    """fairseq evaluates some settings of the model that a file names."""
    torch.save({"model": {}, **settings}, "hostile.pt")
    with pytest.raises(ValueError, match="hostile.pt has code in its setting .*--trust-checkpoint"):
        checkpoint_utils.load_model_ensemble_and_task(["hostile.pt"])
    with pytest.raises(ValueError, match="has code in its setting"):
        loading.load_checkpoint("hostile.pt")
    assert not os.path.exists("was_executed")


RUN = "__import__('pathlib').Path('was_executed').touch()"
#: what eval runs, in each form that Python has for it, with names that are in its reach
HOSTILE = [
    RUN,
    f" {RUN}",
    f"[{RUN}]",
    f"{{'a': {RUN}}}",
    f"{{{RUN}}}",
    f"-{RUN}",
    f"[(512, 3)] * 2 + [{RUN}]",
    f"1 if {RUN} else 2",
    f"{{**{RUN}}}",
    f"lambda: {RUN}",
    f"(x := {RUN})",
    f'f"{{{RUN}}}"',
    f"[{RUN} for _ in 'a']",
    f"{RUN}[0]",
    f"'{{0}}'.format({RUN})",
    f"1 + {RUN}",
    f"[C[{RUN!r}] for C.__class_getitem__ in [eval]]",
    f"[C[{RUN!r}] for C.__class_getitem__ in [torch.os.system]]",
    f"eval({RUN!r})",
    f"eval.__call__({RUN!r})",
    "print(open('was_executed', 'w'))",
    "torch.load('other.pt')",
    f"# a comment\n({RUN})",
    f"({RUN}) # a comment",
    f"{RUN!r}",
    f"[{RUN!r}]",
    f"{repr(repr(RUN))}",
    f'{{"beam": 2, "sampling": true, "a": "{RUN}"}}',
    f'{{"{RUN}": null}}',
    f'[false, "[\\"{RUN}\\"]"]',
    f"[true, {RUN}]",
    "[True, print]",
    "[True.__class__]",
    "C['echo x']",
    "C % 'x'",
    "C * 2",
    "2 ** 9 ** 9 ** 9",
    "1 << 10 ** 10",
    "9" * 99 + "*" + "9" * 99,
    "[0] * 9999",
    "[print] * 2",
    "['a'] * 2 + [C]",
    "[0] * 10 ** 10",
    "'a' * 999999999",
    "[[0] * 9999] * 9999",
    "[" + "0," * 2000 + "] * 1000000",
    "1+" * 2000 + "1",
    "(" * 150 + RUN + ")" * 150,
    "0," * 20000,
    "${" + "." * 20000,
    "-" * 3000 + RUN,
    b"__import__('os').system('touch was_executed')",
    bytearray(RUN.encode()),
    "${task.data}",
    "${oc.env:HOME}",
    "${criterion.a}${criterion.b}",
    "${task.nothing:}",
    "x${task.seed}",
]
#: settings that fairseq evaluates, or passes on to what does
EVALUATED = """
    adam_betas adamax_betas adafactor_eps lamb_betas adaptive_softmax_cutoff adaptive_input_cutoff character_filters
    conv_feature_layers conv_aggregator_layers encoder_layers decoder_layers encoder_attention decoder_attention
    self_attention project_input gated_attention downsample pretrained wer_args feature_encoder_spec
    vggblock_enc_config transformer_enc_config transformer_dec_config conv_dec_config conv_enc_config
    transformer_context transformer_sampling encoder_xformers_att_config decoder_xformers_att_config
    pipeline_balance pipeline_devices pipeline_encoder_balance pipeline_encoder_devices pipeline_decoder_balance
    pipeline_decoder_devices encoder_kernel_size_list decoder_kernel_size_list model_overrides optimizer_overrides
    lr update_freq sampling_weights manual_lr latent_temp input_layers conv_layers eval_bleu_args
""".split()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_setting_that_runs_something_is_refused(text):
    for state in ({"args": Namespace(a=[text])}, {"cfg": {"model": {"b": {"c": text}}, "task": {"data": RUN}}}):
        with pytest.raises(ValueError, match="x.pt has code in its setting .*--trust-checkpoint") as refusal:
            loading.refuse_code_in_settings("x.pt", state)
        assert "\n" not in str(refusal.value)
    assert not os.listdir()


@pytest.mark.parametrize(
    "text",
    ["runs/teacher/model.pt", "my.losses.Focal", "bert-base.uncased", "exp-1.2", "layer1.attn", "(a|b)", "a b.c"],
)
def test_a_text_of_names_is_no_code(text):
    loading.refuse_code_in_settings("x.pt", {"args": Namespace(a=[text]), "cfg": {"task": {"teacher": text}}})


def test_what_a_criterion_has_logged_can_be_read():
    loading.allow_fairseq_classes()
    logged = [np.int32(3), np.bool_(True), np.float16(0.5), np.uint8(7), np.float64(0.25)]
    torch.save({"model": {}, "args": None, "cfg": {"model": {}}, "meters": logged}, "own.pt")
    assert loading.load_checkpoint("own.pt")["meters"] == logged


def hidden(settings):
    """Settings in whatever a file may hold that is no Namespace."""
    from fairseq.data import Dictionary
    from fairseq.logging import meters
    from omegaconf import OmegaConf
    from omegaconf.nodes import AnyNode

    meter = meters.AverageMeter()
    vars(meter).update(settings)
    cycle = [RUN]
    cycle.append(cycle)
    yield {"model": {}, "args": meter}
    yield {"model": {}, "args": Namespace(deep={"er": [meter]})}
    words = Dictionary()
    vars(words).update(settings)
    yield {"model": {}, "args": None, "cfg": {"model": words}}
    yield {"model": {}, "cfg": {"model": {"conv_feature_layers": AnyNode(RUN)}}}
    yield OmegaConf.create({"model": {}, "args": None, "cfg": {"model": dict(settings)}})
    yield {"model": {}, "cfg": {"task": {"data": [RUN]}, "model": Namespace(conv_feature_layers=cycle)}}
    shared = [RUN]  # first where nothing evaluates it, then where something does
    yield {"model": {}, "cfg": {"task": {"data": shared}, "model": Namespace(conv_feature_layers=shared)}}


@pytest.mark.parametrize("form", range(7))
def test_no_object_hides_a_setting(form):
    loading.allow_fairseq_classes()
    state = list(hidden({"arch": "wav2vec2", "_name": "wav2vec2", "conv_feature_layers": RUN}))[form]
    torch.save(state, "hostile.pt")
    for read in (
        lambda: loading.load_checkpoint("hostile.pt"),
        lambda: checkpoint_utils.load_model_ensemble_and_task(["hostile.pt"]),
    ):
        with pytest.raises(
            ValueError, match="hostile.pt (has code in|is a torch file but no fairseq|contains)"
        ) as refusal:
            read()
        assert "\n" not in str(refusal.value)
    assert os.listdir() == ["hostile.pt"]


def test_a_file_whose_contents_are_packed_is_not_read(tmp_path):
    import zipfile

    torch.save({"model": {}, "args": None}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain:
        with zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed:
            for member in plain.infolist():
                packed.writestr(member.filename, plain.read(member))
    with pytest.raises(ValueError, match="packed.pt is no checkpoint as torch saves it"):
        loading.load_checkpoint(tmp_path / "packed.pt")
    loading.load_checkpoint(tmp_path / "plain.pt")


def test_protection_is_off_only_where_torch_says_so_too(monkeypatch):
    for value, expected in (("0", False), ("", False), ("1", True), ("true", True)):
        monkeypatch.setenv(loading._TRUST, value)
        assert loading.trusted() is expected


@pytest.mark.parametrize("setting", EVALUATED)
def test_every_setting_that_fairseq_evaluates_is_looked_at(setting):
    with pytest.raises(ValueError, match=f"x.pt has code in its setting args.{setting} "):
        loading.refuse_code_in_settings("x.pt", {"args": Namespace(**{setting: RUN})})


def test_no_evaluation_in_the_installed_fairseq_is_forgotten():
    """Finds eval(...) and its like under fairseq's models, tasks and the rest."""
    import re

    import fairseq

    found = set()
    for file in Path(fairseq.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        found.update(re.findall(r"\b(?:eval|eval_str_list|eval_str_dict)\(\s*(?:self\.)?(?:cfg|args)\.([a-z_]+)", text))
    assert {"adam_betas", "conv_feature_layers"} < found
    assert not [name for name in found if loading._FREE_TEXT.fullmatch(name)]
    assert found <= set(EVALUATED)


OURS = {
    "warm-start": "warm-start hostile.pt out.pt --arch roberta_t5",
    "import-tupe": "import-tupe hostile.pt out.pt",
    "order-gap": "order-gap hostile.pt DATA",
    "plot bias": "plot bias hostile.pt",
    "plot attention": "plot attention hostile.pt --text w1",
}
ROUTES = (*FAIRSEQ, *OURS, "finetune", "hub", "ema", "average")


def run_of_fairseq(command, data, monkeypatch):
    arguments = list(FAIRSEQ["train" if command == "finetune" else command])
    if command == "finetune":
        arguments[0] = "--finetune-from-model"
    for side in ("a", "b"):  # for translation
        Path(f"dict.{side}.txt").write_bytes((data / "dict.txt").read_bytes())
    name = "train" if command == "finetune" else command
    folder = "." if "translation" in arguments else str(data)
    line = [f"fairseq-{name}", folder, "--cpu", "--user-dir", str(ROOT / "fairseq_relpos"), *arguments]
    monkeypatch.setattr(sys, "argv", line)
    importlib.import_module(f"fairseq_cli.{name}").cli_main()


@pytest.mark.parametrize("command", ROUTES)
@pytest.mark.parametrize("kind", ["object", "setting"])
def test_no_route_of_a_checkpoint_runs_what_is_in_it(kind, command, hostile, data, monkeypatch, capsys):
    expected = "hostile.pt contains exec, which has no place"
    if kind == "setting":
        settings = Namespace(arch="roberta_t5", _name="roberta_t5", conv_feature_layers=f"[x for x in [{RUN}]]")
        torch.save({"model": {}, "args": None, "cfg": {"model": settings}}, "hostile.pt")
        expected = "hostile.pt has code in its setting cfg.model.conv_feature_layers"
    if command in OURS:
        assert main(OURS[command].replace("DATA", str(data)).split()) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert expected in said and "--trust-checkpoint" in said
        assert os.listdir() == ["hostile.pt"]
    else:
        with pytest.raises((SystemExit, ValueError), match=expected):
            if command == "hub":
                RelPosRoberta.from_pretrained(".", "hostile.pt", str(data))
            elif command == "ema":
                checkpoint_utils.load_ema_from_checkpoint("hostile.pt")
            elif command == "average":
                monkeypatch.syspath_prepend(ROOT / "scripts")
                monkeypatch.setattr(sys, "argv", ["average_checkpoints.py", "out.pt", "hostile.pt", "hostile.pt"])
                importlib.import_module("average_checkpoints").main()
            else:
                run_of_fairseq(command, data, monkeypatch)
    assert not os.path.exists("was_executed") and not os.path.exists("out.pt")


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 3)] * 20 + [(1024, 1)]",
        "(0.9, 0.98)",
        "/data (copy)/bin",
        "gelu",
        "1e-4",
        '{"beam": 4, "lenpen": 0.6}',
        "[(512, 5)] + [(128, 1, 0), (128, 5, 0), (512, 1, 3)] * 3 + [(1024, 1, 0)] * 6",
        "20000,60000",
        "-1",
        "",
        "${common.seed}",
        "${optimization.lr}",
        "encoder,decoder",
        "en-de,en-fr",
        "valid,valid1",
        "True",
        "None",
        "???",
        "num_buckets=32 heads=each",
        "encoder=t5,decoder=alibi",
        "encoder.max_distance=511",
        '{"target_lang": "de"}',
        '{"beam": 2, "match_source_len": true, "lenpen": null}',
        "[True] + [False]*5",
        "transformer.wmt19.en-de",
        "13a",
        "@@ ",
    ],
)
def test_settings_that_are_no_code_are_read(text):
    loading.refuse_code_in_settings("x.pt", {"args": Namespace(data=text, a=text if text[:11] != "transformer" else 1)})


@pytest.mark.parametrize(
    "settings",
    [
        {"config_yaml": "config_st.yaml", "global_cmvn_stats_npz": "gcmvn.npz", "fixed_dictionary": "dict.txt"},
        {"finetune_dict_specs": "{'src': 'dict.src.txt'}", "lexicon": "lexicon.txt", "f0_stats": "f0_stats.pt"},
        {"lang_pairs": "de.tok-en.tok", "wandb_run_name": "exp(3)", "width": "1/3", "data": ["wmt14.en-fr.joined"]},
        {"save_dir": "runs/tupe(2)", "data": "wiki (1)", "continue_once": "runs/a.pt"},
        {"class": "logging.StreamHandler", "filename": "hydra_train.log", "input": "src.de", "size": 3, "none": None},
    ],
)
def test_settings_of_real_checkpoints_are_read(settings):
    loading.refuse_code_in_settings("x.pt", {"args": Namespace(**settings), "cfg": {"model": settings}})


def test_the_dictionaries_that_tasks_of_speech_keep_are_read():
    from fairseq.data import Dictionary

    words = Dictionary()
    words.add_symbol("a")
    torch.save({"model": {}, "args": None, "cfg": {}, "task_state": {"target_dictionary": words}}, "speech.pt")
    assert loading.load_checkpoint("speech.pt")["task_state"]["target_dictionary"] == words


def test_every_default_of_the_installed_fairseq_is_read():
    """The defaults of its dataclasses and of its architectures."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY
    from omegaconf import OmegaConf

    kinds = [FairseqConfig, *MODEL_DATACLASS_REGISTRY.values(), *TASK_DATACLASS_REGISTRY.values()]
    for kind in filter(None, kinds):
        loading.refuse_code_in_settings(kind.__name__, {"cfg": OmegaConf.structured(kind)})
    for arch, fill in ARCH_CONFIG_REGISTRY.items():
        settings = Namespace()
        try:
            fill(settings)
        except Exception:
            continue  # an architecture that needs some flags
        loading.refuse_code_in_settings(arch, {"args": settings})


def test_reading_protects_its_own_thread_alone(monkeypatch):
    """torch.load of somebody else in the same process keeps what its caller says."""
    import threading

    torch.save({"model": {}, "args": None, "cfg": {}, "optimizer_history": [{"optimizer_name": ""}]}, "plain.pt")
    torch.save(RunsCode(), "theirs.pt")
    seen = []

    def meanwhile(state):
        other = threading.Thread(target=lambda: seen.append(torch.load("theirs.pt", weights_only=False)))
        other.start()
        other.join()
        return state

    monkeypatch.setattr(checkpoint_utils, "_upgrade_state_dict", meanwhile)
    checkpoint_utils.load_checkpoint_to_cpu("plain.pt")
    assert seen and os.path.exists("was_executed") and "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_a_file_that_is_trusted_is_read(hostile, caplog, capsys):
    assert main(["warm-start", hostile, "out.pt", "--arch", "roberta_t5", "--trust-checkpoint"]) == 1
    assert "is no RoBERTa checkpoint" in capsys.readouterr().err
    assert os.path.exists("was_executed") and "RUN while it is read" in caplog.text


def test_the_flag_is_taken_from_a_command_line(monkeypatch):
    monkeypatch.setenv(loading._TRUST, "")
    assert loading.take_trust_flag(["a", "--trust-checkpoint", "b"]) == ["a", "b"]
    monkeypatch.delenv(loading._TRUST)
    assert loading.take_trust_flag(["a"]) == ["a"] and loading._TRUST not in os.environ
