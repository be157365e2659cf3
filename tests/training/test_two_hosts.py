"""Two hosts: two network namespaces with an address each, joined by a pair of virtual cables."""

import os
import subprocess
import time
from pathlib import Path

import pytest
import torch
from fairseq_data import masked_lm
from forked import train, weights

ROOT = Path(__file__).parents[2]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@pytest.fixture
def hosts():
    """The names of two namespaces in which 10.77.0.1 and 10.77.0.2 live."""
    names = [f"relpos{os.getpid()}{side}" for side in "ab"]
    cables = [f"rp{os.getpid() % 100000}{side}" for side in "ab"]
    steps = [
        ("netns", "add", names[0]),
        ("netns", "add", names[1]),
        ("link", "add", cables[0], "type", "veth", "peer", "name", cables[1]),
    ]
    for number, (name, cable) in enumerate(zip(names, cables), 1):
        steps += [
            ("link", "set", cable, "netns", name),
            ("-n", name, "link", "set", cable, "name", "cable"),
            ("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable"),
            ("-n", name, "link", "set", "lo", "up"),
            ("-n", name, "link", "set", "cable", "up"),
        ]
    try:
        for step in steps:
            try:
                done = ip(*step)
            except FileNotFoundError:
                pytest.skip("no ip command")
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted here: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


@pytest.mark.slow
def test_two_hosts_equal_one_rank_with_twice_the_batch(data, tmp_path, hosts):
    common = (
        *"--arch roberta_tupe_r --disable-validation --required-batch-size-multiple 1".split(),
        *"--max-update 20 --curriculum 99 --adam-eps 1e-6".split(),
    )
    command = masked_lm(data, tmp_path / "two", *common)
    started = []
    for node, name in enumerate(hosts):
        with open(tmp_path / f"node{node}.log", "w") as log:
            started.append(
                subprocess.Popen(
                    [
                        *f"ip netns exec {name} bash {ROOT}/scripts/launch_torchrun.sh".split(),
                        *"--nnodes 2 --node_rank".split(),
                        str(node),
                        *"--master_addr 10.77.0.1 --nproc_per_node 1 --".split(),
                        *command,
                    ],
                    cwd=ROOT,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "cable"},
                )
            )
        time.sleep(0.5)
    one = masked_lm(data, tmp_path / "one", *common, "--batch-size", 8)
    train(one, tmp_path / "log")
    logs = [tmp_path / f"node{node}.log" for node in (0, 1)]
    codes = [process.wait(240) for process in started]
    assert codes == [0, 0], "\n".join(log.read_text()[-3000:] for log in logs)
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "two"), rtol=0, atol=1e-5)
