"""The fused kernels, compiled for a GPU that need not be there: ``compiled`` and ``variants`` start this file as a
program.

Counted are, for each kernel, from what NVIDIA's disassembler prints: the registers of a thread; and in the inner loop,
which is the one with the most products on tensor cores and works on one tile each time: the instructions, the
barriers, the loads and stores of local memory (registers that did not suffice), and the tensor cores' products in
units of a tile of M queries, M keys and D entries (None on sm90, where an instruction may be of any size).
"""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import preloaded


def compiled(cache, *cases):
    """One dictionary a kernel, of the cases (arguments of ``compile_kernels``) in their order."""
    return started(cache, "compile_kernels", *cases)


def variants(cache, *cases):
    """kernel -> how often Triton compiles it for one case, of the cases (arguments of ``count_variants``)."""
    return started(cache, "count_variants", *cases)


def started(cache, function, *cases):
    environment = preloaded.environment(PYTHONPATH=os.pathsep.join(sys.path), TRITON_CACHE_DIR=str(cache))
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, __file__, function, json.dumps(cases)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def compile_kernels(
    form,
    capability=80,
    kib=163,
    dtype="bfloat16",
    width=64,
    padded=False,
    causal=False,
    queries=512,
    p=0.1,
    counted=True,
):
    """Prints a line for each kernel of a call with these terms, forward and backward, on a GPU with so much shared
    memory for a program. counted: with what is counted in machine code, rather than its shared memory alone."""
    import torch

    from fairseq_relpos.backends import Mask, triton

    class Compile(triton.Launch):
        def start(self, kernel, grid, arguments, constants):
            binary = kernel.warmup(*arguments, grid=(1, 1, 1), **constants)
            name = kernel.fn.__name__ + (f" {constants['OF']}" if "OF" in constants else "")
            found = {"kernel": name, "form": form, "shared": binary.metadata.shared}
            if counted:
                found |= counts(binary.asm["cubin"])
                tile = constants["M"] ** 2 * constants["D"] / constants["num_warps"]
                products = found.pop("tensor") * 16 * 8 * 16 / tile  # an HMMA of 16-bit numbers is 16 x 8 x 16
                found["products"] = products if capability == 80 else None
            print(json.dumps(found))

    pretend(capability, kib)
    S = 512
    terms, v = terms_of(form, 12, queries, S, width, getattr(torch, dtype))
    padding_BS = torch.zeros(2, S, dtype=torch.bool) if padded else None
    extra = torch.zeros(queries, S) if form == "rows and a mask" else None
    settings = triton.Settings.of(terms, v, Mask(padding_BS, causal=causal, extra=extra), p)
    launch_all(Compile, settings, terms, v)


def count_variants(form, lengths, batches, capability=90, kib=227):
    """Prints how many variants of each kernel Triton compiles for a training with batches of so many sentences, of
    these lengths, with pads and without, in an encoder and a decoder. Nothing is compiled."""
    import torch
    from triton.runtime import jit

    from fairseq_relpos.backends import Mask, triton

    found = {}

    class Count(triton.Launch):
        def start(self, kernel, grid, arguments, constants):
            self.name = kernel.fn.__name__ + (f" {constants['OF']}" if "OF" in constants else "")
            jit.JITFunction._do_compile = lambda kernel, key, *more: found.setdefault(self.name, set()).add(key)
            kernel.warmup(*arguments, grid=(1, 1, 1), **constants)

    pretend(capability, kib)
    for length, batch, causal, padded in itertools.product(lengths, batches, (False, True), (False, True)):
        terms, v = terms_of(form, 8, length, length, 64, torch.float16, batch, device="meta")
        padding_BS = torch.zeros(batch, length, dtype=torch.bool, device="meta") if padded else None
        launch_all(Count, triton.Settings.of(terms, v, Mask(padding_BS, causal=causal), 0.1), terms, v)
    print(json.dumps({name: len(keys) for name, keys in found.items()}))


def pretend(capability, kib):
    """A GPU with so much shared memory for a program."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from fairseq_relpos.backends import triton

    class Driver:
        def get_current_device(self):
            return 0

        def get_current_stream(self, device=None):
            return 0

        def get_current_target(self):
            return GPUTarget("cuda", capability, 32)

    driver.set_active(Driver())
    triton.shared_memory = lambda device: kib


def terms_of(form, H, T, S, width, dtype, batch=2, device="cpu"):
    """Terms in the order of the offsets, and values."""
    import torch

    from fairseq_relpos.rows import Clipped
    from fairseq_relpos.terms import Terms, by_offset

    def heads(length):
        """As attention has them, of [T, B, E] in memory."""
        return torch.zeros(length, batch, H, width, dtype=dtype, device=device).permute(1, 2, 0, 3)

    rows = Clipped(511)
    table, row = (torch.zeros(shape, device=device) for shape in ((1, rows.count, width), (H, rows.count)))
    bias, reset = (torch.zeros(shape, device=device) for shape in ((1, H, T, S), (2, H)))
    forms = {
        "everything": {"A": table, "C": table, "gain": row[:1], "bias_row": row, "bias": bias, "reset": reset},
        "rows": {"A": table, "bias_row": row},
        "rows and a mask": {"A": table, "bias_row": row},
        "product": {"A": table, "C": table, "product": True},
        "gate": {"gate": table},
        "bias": {"bias": bias},
        "bias_row": {"bias_row": row},
        "shaw": {"A": table},
        "m4": {"A": table, "C": table},
    }
    return by_offset(Terms(heads(T), heads(S), 0.1, rows=rows, **forms[form])), heads(S)


def launch_all(launch, settings, terms, v):
    """The kernels of one call, forward and backward."""
    from fairseq_relpos.backends import triton

    inputs = [terms.q_BHTD, terms.k_BHSD, v, *(getattr(terms, name) for name in triton.POSITIONS)]
    out, peak, total = launch(settings, *inputs).forward()
    launch(settings, *inputs).backward(out, peak, total, peak, [x is not None for x in inputs])


def counts(cubin):
    """What is counted of a kernel's machine code."""
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    file = Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin"
    file.write_bytes(cubin)

    def output(tool, *flags):
        return subprocess.run([tools / tool, *flags, file], capture_output=True, text=True, check=True).stdout

    (registers,) = re.findall(r"REG:(\d+)", output("cuobjdump", "-res-usage"))
    loop = inner_loop(output("nvdisasm", "-c"))
    return {
        "registers": int(registers),
        "instructions": len(loop),
        "tensor": sum(name.startswith(("HMMA", "HGMMA")) for name in loop),
        "barriers": sum(name.startswith("BAR") for name in loop),
        "local": sum(name.startswith(("LDL", "STL")) for name in loop),
    }


def inner_loop(text):
    """The names of its instructions."""
    instructions, places, loops = [], {}, []
    for line in text.splitlines():
        label = re.match(r"\s*(\.L_\w+):", line)
        if label:
            places[label[1]] = len(instructions)
        found = re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)", line)
        if found:
            instructions.append(found[1])
            back = re.search(r"`\((\.L_\w+)\)", found[2])
            if found[1].startswith("BRA") and back and back[1] in places:
                loops.append(instructions[places[back[1]] :])

    def products(loop):
        return sum(name.startswith(("HMMA", "HGMMA")) for name in loop)

    return max(loops, key=lambda loop: (products(loop), -len(loop)), default=[])


if __name__ == "__main__":
    for case in json.loads(sys.argv[2]):
        globals()[sys.argv[1]](**case)
