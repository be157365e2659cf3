"""What Linux says of this machine's processor."""

import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def has_bf16_units(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this processor has units for products of bfloat16 (AMX, avx512_bf16, those of ARM)."""
    return says(r"^(flags|Features)\s*:.*\b(amx_bf16|avx512_bf16|bf16|svebf16)\b", cpuinfo)


def is_of_another_maker_than_intel(cpuinfo: Path = CPUINFO) -> bool:
    """False also where Linux does not say."""
    return says(r"^vendor_id\s*:\s*(?!GenuineIntel)\w", cpuinfo)


def says(expression: str, cpuinfo: Path) -> bool:
    try:
        return re.search(expression, cpuinfo.read_text(), re.M) is not None
    except OSError:
        return False
