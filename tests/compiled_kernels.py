"""The fused kernels, compiled for a GPU that need not be there: ``compiled`` starts this file as a program.

Counted are, for each kernel, from what NVIDIA's disassembler prints: the registers of a thread; and in the inner loop,
which is the one with the most products on tensor cores and works on one tile each time: the instructions, the
barriers, the loads and stores of local memory (registers that did not suffice), and the tensor cores' products in
units of a tile of M queries, M keys and D entries (None on sm90, where an instruction may be of any size).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import preloaded


def compiled(cache, *cases):
    """One dictionary a kernel, of the cases (arguments of ``compile_kernels``) in their order."""
    environment = preloaded.environment(PYTHONPATH=os.pathsep.join(sys.path), TRITON_CACHE_DIR=str(cache))
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(cases)], capture_output=True, text=True, env=environment
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
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from fairseq_relpos.backends import Mask, triton
    from fairseq_relpos.rows import Clipped
    from fairseq_relpos.terms import Terms, by_offset

    class Driver:
        def get_current_device(self):
            return 0

        def get_current_stream(self, device=None):
            return 0

        def get_current_target(self):
            return GPUTarget("cuda", capability, 32)

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

    driver.set_active(Driver())
    triton.shared_memory = lambda device: kib
    H, S, rows, dtype = 12, 512, Clipped(511), getattr(torch, dtype)
    q = torch.zeros(2, H, queries, width, dtype=dtype)
    k, v = (torch.zeros(2, H, S, width, dtype=dtype) for _ in range(2))
    table = torch.zeros(1, rows.count, width)
    row, bias, reset = (torch.zeros(shape) for shape in ((H, rows.count), (1, H, queries, S), (2, H)))
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
    terms = by_offset(Terms(q, k, 0.1, rows=rows, **forms[form]))
    padding_BS = torch.zeros(2, S, dtype=torch.bool) if padded else None
    extra = torch.zeros(queries, S) if form == "rows and a mask" else None
    settings = triton.Settings.of(terms, v, Mask(padding_BS, causal=causal, extra=extra), p)
    inputs = [q, k, v, *(getattr(terms, name) for name in triton.POSITIONS)]
    out, peak, total = Compile(settings, *inputs).forward()
    needed = [x is not None for x in inputs]
    Compile(settings, *inputs).backward(out, peak, total, peak, needed)


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
    for case in json.loads(sys.argv[1]):
        compile_kernels(**case)
