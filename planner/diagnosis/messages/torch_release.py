"""Which release of torch prints a wording. Strings of the released binaries, torch 1.0 to 2.14."""

from __future__ import annotations


def torch_version(text: str, program: str) -> str | None:
    """The range of torch versions that print such a message, None where the text fits all of them."""
    low = text.lower()
    if program == "pytorch-mps":
        return "torch >= 2.8 (MPS)" if "ib," in low or "ib)" in low else "torch 1.12 to 2.7 (MPS)"
    if program == "pytorch-xpu":
        return _xpu_version(low)
    if "total capacity;" in low or "already alloc" in low:
        return _old_style(low)
    if "total capac" in low or "allocated by pytorch" in low:
        return _new_style(low)
    if "currently allocated" in low:
        return "torch >= 1.13 (cudaMallocAsync)"
    return None


def _old_style(low: str) -> str:
    if "cached)" in low:
        return "torch 1.0 to 1.3"
    if "max_split_size_mb" in low:
        return "torch 1.13 to 2.0" if "outofmemoryerror" in low else "torch 1.10 to 2.0"
    return "torch 1.4 to 1.9" if "reserved in total" in low else "torch 1.0 to 2.0"


def _new_style(low: str) -> str:
    if "capacty" in low:
        return "torch 2.1"
    if "docs.pytorch.org" in low:
        return "torch >= 2.11"
    if "allowed;" in low or "torch.outofmemoryerror" in low:
        return "torch >= 2.5"
    if "private pools" in low:
        return "torch >= 2.4"
    if "torch.cuda.outofmemoryerror" in low:
        return "torch 2.2 to 2.4"
    return "torch >= 2.2"


def _xpu_version(low: str) -> str:
    if "total capacity;" in low:
        return "Intel extension for PyTorch"
    return "torch >= 2.9 (XPU)" if "is free" in low else "torch 2.5 to 2.8 (XPU)"
