"""The fused kernels, compiled for a GPU that need not be there: ``compiled`` and ``variants`` start this file as a
program.

Counted are, for each kernel, from what NVIDIA's disassembler prints: the registers of a thread; and in each inner loop
with products on tensor cores, which works on one tile each time: the instructions, the barriers, the loads and stores
of local memory (registers that did not suffice), and the tensor cores' products in units of a tile of M queries, M keys
and D entries (None on sm90, where an instruction may be of any size). The longest loop is that of near tiles; ``far``
has the longer one of the two others, where tables are clipped.
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
    keys=512,
    p=0.1,
    counted=True,
):
    """Prints a line for each kernel of a call with these terms, forward and backward, on a GPU with so much shared
    memory for a program. counted: with what is counted in machine code, rather than its shared memory alone."""
    import torch

    from fairseq_relpos.backends import Mask, triton

    class Compile(triton.Launch):
        def start(self, kernel, grid, arguments, constants):
            name = kernel.fn.__name__ + (f" {constants['OF']}" if "OF" in constants else "")
            if counted and kernel.fn.__name__ in ("backward_delta", "backward_ends"):
                return  # they have no products
            binary = kernel.warmup(*arguments, grid=(1, 1, 1), **constants)
            found = {"kernel": name, "form": form, "M": constants["M"], "shared": binary.metadata.shared}
            if counted:
                found |= counts(binary.asm["cubin"])
                tile = constants["M"] ** 2 * constants["D"] / constants["num_warps"]
                for loop in (found, found["far"] or {}):
                    products = loop.pop("tensor", 0) * 16 * 8 * 16 / tile  # an HMMA of 16-bit numbers is 16 x 8 x 16
                    loop["products"] = products if capability == 80 else None
            print(json.dumps(found))

    pretend(capability, kib)
    S = keys
    terms, v = terms_of(form, 12, queries, S, width, getattr(torch, dtype))
    padding_BS = torch.zeros(2, S, dtype=torch.bool) if padded else None
    extra = torch.zeros(queries, S) if form == "rows and a mask" else None
    launch_all(Compile, terms, v, Mask(padding_BS, causal=causal, extra=extra), p)


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
        launch_all(Count, terms, v, Mask(padding_BS, causal=causal), 0.1)
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
    """Terms and values."""
    import torch

    from fairseq_relpos.rows import Clipped, LogBuckets
    from fairseq_relpos.terms import Terms

    def heads(length):
        """As attention has them, of [T, B, E] in memory."""
        return torch.zeros(length, batch, H, width, dtype=dtype, device=device).permute(1, 2, 0, 3)

    rows_of = {"t5": LogBuckets(32, 128), "shaw, k=16": Clipped(16), "m4, k=32": Clipped(32)}
    rows = rows_of.get(form.removesuffix(", 1,024 tokens"), Clipped(511))
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
        "m4": {"A": table, "C": table},
        "none": {},
        "t5": {"bias_row": row},
        "shaw, k=16": {"A": table},
        "m4, k=32": {"A": table, "C": table},
        "m4, k=32, 1,024 tokens": {"A": table, "C": table},
    }
    return Terms(heads(T), heads(S), 0.1, rows=rows, **forms[form]), heads(S)


def launch_all(launch, terms, v, mask, dropout_p):
    """The kernels of one call, forward and backward."""
    from fairseq_relpos.backends import triton
    from fairseq_relpos.terms import by_offset

    near = triton.near_offsets(terms)
    terms = by_offset(terms, near)
    settings = triton.Settings.of(terms, v, mask, dropout_p, near)
    inputs = [terms.q_BHTD, terms.k_BHSD, v, *(getattr(terms, name) for name in triton.POSITIONS)]
    out, peak, total = launch(settings, *inputs).forward()
    launch(settings, *inputs).backward(out, out, peak, total, [x is not None for x in inputs])


def counts(cubin):
    """Counts of a kernel's machine code."""
    import triton

    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    file = Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin"
    file.write_bytes(cubin)

    def output(tool, *flags):
        return subprocess.run([tools / tool, *flags, file], capture_output=True, text=True, check=True).stdout

    (registers,) = re.findall(r"REG:(\d+)", output("cuobjdump", "-res-usage"))
    near, *far = [
        {
            "instructions": len(loop),
            "tensor": sum(name.startswith(("HMMA", "HGMMA")) for name in loop),
            "barriers": sum(name.startswith("BAR") for name in loop),
            "local": sum(name.startswith(("LDL", "STL")) for name in loop),
        }
        for loop in inner_loops(output("nvdisasm", "-c"))
    ]
    return {"registers": int(registers), **near, "far": far[0] if far else None}


def inner_loops(text):
    """The names of the instructions of each, the longest first."""
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
                loops.append(range(places[back[1]], len(instructions)))
    loops = [loop for loop in loops if any(instructions[x].startswith(("HMMA", "HGMMA")) for x in loop)]
    inner = [loop for loop in loops if not any(x != loop and x[0] in loop and x[-1] in loop for x in loops)]
    return sorted(([instructions[x] for x in loop] for loop in inner), key=len, reverse=True)


if __name__ == "__main__":
    for case in json.loads(sys.argv[2]):
        globals()[sys.argv[1]](**case)
