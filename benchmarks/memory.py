"""The memory that a step needs at most, on a CPU and on a GPU."""

import os
import threading
import traceback
from pathlib import Path

import torch


def peak_memory(step):
    """Bytes that step() needs beyond what was there before, in a process of its own. A first step loads code and makes
    what is kept; its thread ends with the scratch memory that is kept for a thread."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            first = threading.Thread(target=step)
            first.start()
            first.join()
            torch.set_num_threads(1)  # OpenMP's threads do not survive the fork
            torch.randn(2048, 2048) @ torch.randn(2048, 2048)  # BLAS keeps buffers for each thread, which are no step's
            before = status("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # start a new peak
            step()
            os.write(write_end, str(status("VmHWM") - before).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # else the child would go on as its parent
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        if not (written := pipe.read()):
            raise RuntimeError("a step has failed in the process that counts its memory: see above")
        return int(written)


def peak_memory_of_cuda(step):
    """Bytes on the GPU that step() needs beyond what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def status(field):
    line = next(x for x in open("/proc/self/status") if x.startswith(field))
    return int(line.split()[1]) * 1024
