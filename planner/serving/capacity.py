"""How many requests a pool of cache holds."""

from __future__ import annotations


def requests_that_fit(free_bytes: int, bytes_per_request: int) -> int:
    """Whole requests in the free bytes: 8 GiB holds 16 of 0.5 GiB and 8 of 1 GiB.

    Raises:
        ValueError: a request of no bytes.
    """
    if bytes_per_request <= 0:
        raise ValueError("a request takes at least one byte")
    return max(free_bytes, 0) // bytes_per_request
