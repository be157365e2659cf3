"""--optimizer torch_adamw against fairseq's adam."""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.sgd import SGD
from fairseq_data import masked_lm
from forked import Run, error_of, train, weights

from fairseq_relpos.optim.torch_adamw import FlatAdamW, TorchAdamW, TorchAdamWConfig

# an epsilon that would show if it stood elsewhere
SETTINGS = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-2, "weight_decay": 0.1}


def parameters():
    torch.manual_seed(3)
    return [torch.nn.Parameter(torch.randn(5, 4)), torch.nn.Parameter(torch.randn(7))]


def steps(optimizer, params, count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()


def both():
    theirs, ours = parameters(), parameters()
    adam, adamw = FairseqAdam(FairseqAdamConfig(**SETTINGS), theirs), TorchAdamW(TorchAdamWConfig(**SETTINGS), ours)
    return adam, theirs, adamw, ours


def test_updates_are_those_of_fairseqs_adam_with_decoupled_decay():
    stock, theirs, adamw, ours = both()
    steps(stock, theirs, 50, seed=1)
    steps(adamw, ours, 50, seed=1)
    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=2e-6)


def test_each_goes_on_from_the_others_state():
    stock, theirs, adamw, ours = both()
    steps(stock, theirs, 20, seed=1)
    steps(adamw, ours, 20, seed=1)
    states = copy.deepcopy((stock.state_dict(), adamw.state_dict()))
    adamw.load_state_dict(states[0])
    stock.load_state_dict(states[1])
    steps(stock, theirs, 20, seed=2)
    steps(adamw, ours, 20, seed=2)
    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=2e-6)
    assert adamw.param_groups[0]["foreach"] is True


def arguments(data, save_dir, *more):
    flags = "--arch roberta_t5 --disable-validation --weight-decay 0.01 --adam-eps 1e-6"
    return masked_lm(data, save_dir, *flags.split(), "--adam-betas", "(0.9, 0.98)", *more)


@pytest.mark.parametrize("first, then", [("adam", "torch_adamw"), ("torch_adamw", "adam")])
def test_a_training_goes_on_with_the_other(data, tmp_path, first, then):
    def run(folder, optimizer, updates):
        more = "--optimizer", optimizer, "--max-update", updates
        return train(arguments(data, tmp_path / folder, *more), tmp_path / "log")

    run("mixed", first, 4)
    assert "@ 4 updates" in run("mixed", then, 8)
    run("one", "adam", 8)
    torch.testing.assert_close(weights(tmp_path / "mixed"), weights(tmp_path / "one"), rtol=0, atol=2e-5)


def test_memory_efficient_half_precision_is_refused_in_one_line(data, tmp_path):
    command = arguments(data, tmp_path, "--optimizer", "torch_adamw", "--memory-efficient-bf16")
    assert "keep its averages in half precision: use --fp16" in error_of(Run(command, tmp_path / "log"))


@pytest.mark.parametrize("kind", [(FairseqAdam, FairseqAdamConfig), (TorchAdamW, TorchAdamWConfig)])
def test_a_resume_takes_the_settings_of_the_command(kind):
    def optimizer(**settings):
        parameter = torch.nn.Parameter(torch.ones(2))
        return kind[0](kind[1](lr=[0.1], adam_betas="(0.9, 0.99)", **settings), [parameter]), parameter

    first, parameter = optimizer(adam_eps=1e-8, weight_decay=0.5)
    parameter.grad = torch.ones(2)
    first.step()
    second, _ = optimizer(adam_eps=1e-6, weight_decay=0.25)
    second.load_state_dict(first.state_dict(), {"lr": 0.3})
    (group,) = second.param_groups
    assert (group["weight_decay"], group["eps"], tuple(group["betas"]), group["lr"]) == (0.25, 1e-6, (0.9, 0.99), 0.3)
    third, _ = optimizer(adam_eps=1e-6, weight_decay=0.25)
    third.load_state_dict(first.state_dict(), {"weight_decay": 0.75})
    assert third.param_groups[0]["weight_decay"] == 0.75


def amp_optimizer(scale, growth_interval):
    """fairseq's optimizer of --amp for one parameter, with torch's scaler of a CPU."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    cfg = Namespace(
        common=Namespace(fp16_init_scale=128, min_loss_scale=1e-4, amp_scale_window=7, amp_init_scale=3),
        optimizer=Namespace(lr=[1.0], momentum=0.0, weight_decay=0.0),
    )
    amp = AMPOptimizer(cfg, [parameter], SGD(cfg.optimizer, [parameter]))
    assert amp.scaler.get_growth_interval() == 7
    amp._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    return amp, parameter


def test_gradients_are_divided_by_the_loss_scale_once():
    amp, parameter = amp_optimizer(128.0, 2000)
    amp.backward(3 * parameter.sum())
    assert amp.clip_grad_norm(0.0) == 3
    amp.step()
    assert parameter.item() == -3


def test_the_scaler_of_amp_goes_on_where_it_was():
    (trained, _), (again, _) = amp_optimizer(4096.0, 4096), amp_optimizer(128.0, 128)
    trained.scaler._lazy_init_scale_growth_tracker("cpu")
    again.load_state_dict(trained.state_dict())
    assert again.scaler.get_scale() == 4096 and again.scaler.get_growth_interval() == 128


def test_a_resume_under_amp_continues_its_own_optimizer():
    def amp(decay):
        parameter = torch.nn.Parameter(torch.ones(1))
        cfg = Namespace(common=Namespace(fp16_init_scale=128, min_loss_scale=1e-4), optimizer=Namespace())
        inner = TorchAdamW(TorchAdamWConfig(lr=[0.1], weight_decay=decay), [parameter])
        parameter.grad = torch.ones(1)
        return AMPOptimizer(cfg, [parameter], inner)

    trained, again = amp(0.5), amp(0.25)
    for _ in range(3):
        trained.fp32_optimizer.step()
    again.load_state_dict(trained.state_dict(), {"lr": 0.3})
    (group,) = again.param_groups
    assert (again.optimizer.updates, group["weight_decay"], group["lr"]) == (3, 0.25, 0.3)
    with pytest.raises(ValueError, match="no setting 'weight_deacy'"):
        again.load_state_dict(trained.state_dict(), {"weight_deacy": 0.1})


@pytest.mark.parametrize("how", ["fused", "foreach"])
def test_updates_that_the_scaler_skips_are_not_counted(how):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = FlatAdamW([parameter], **{how: True}), torch.amp.GradScaler("cpu")
    for gradient in (1.0, float("inf"), 1.0):
        scaler.scale(torch.zeros(1))
        parameter.grad = torch.full((1,), gradient)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.updates == optimizer.state[parameter]["step"] == 2


def test_a_share_of_the_parameters_goes_on_too(tmp_path):
    """--zero-sharding os: fairscale keeps the optimizer of a rank's own parameters inside another one."""
    pytest.importorskip("fairscale")
    from fairseq.optim.shard import shard_

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        whole, half, resumed = (TorchAdamW(TorchAdamWConfig(**SETTINGS), parameters()) for _ in range(3))
        for optimizer in (half, resumed):
            shard_(optimizer, None)
        steps(whole, list(whole.params), 9, seed=1)
        steps(half, list(half.params), 5, seed=1)
        half.optimizer.consolidate_state_dict()
        resumed.load_state_dict(copy.deepcopy(half.state_dict()))
        for mine, theirs in zip(resumed.params, half.params):
            mine.data.copy_(theirs)
        generator = torch.Generator().manual_seed(1)
        for number in range(9):
            for p in resumed.params:
                p.grad = torch.randn(p.shape, generator=generator)
            if number >= 5:
                resumed.step()
    finally:
        torch.distributed.destroy_process_group()
    assert list(map(torch.equal, resumed.params, whole.params)) == [True, True]


def test_the_state_of_apex_serves():
    """apex's Adam counts its steps for a group, and has settings that torch's has not."""
    parameter = torch.nn.Parameter(torch.ones(2))
    mine = TorchAdamW(TorchAdamWConfig(lr=[0.1]), [parameter])
    group = dict(mine.param_groups[0], params=[0], step=7, bias_correction=True)
    averages = {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    mine.load_state_dict({"state": {0: averages}, "param_groups": [group]})
    assert mine.optimizer.updates == 7
    parameter.grad = torch.ones(2)
    mine.step()
    assert mine.optimizer.state[parameter]["step"] == 8

    mine.optimizer.defaults["adam_w_mode"] = True  # one that apex would have and no checkpoint does
    mine.load_state_dict(mine.state_dict())
    assert mine.param_groups[0]["adam_w_mode"] is True
