"""Real text that every Python carries: its own help topics, as bytes."""

from __future__ import annotations

from pydoc_data import topics

import torch


def windows(count: int, length: int) -> torch.Tensor:
    """Cut Python's help topics into windows of bytes, spread evenly over the text.

    Parameters
    ----------
    count : int
        Number of windows.
    length : int
        Bytes in a window.

    Returns
    -------
    torch.Tensor
        int64 [count, length], values 0 to 255.
    """
    text = "\n".join(topics.topics[name] for name in sorted(topics.topics)).encode()
    data = torch.tensor(list(text), dtype=torch.int64)
    starts = torch.linspace(0, len(data) - length, count).to(torch.int64)
    return data[starts[:, None] + torch.arange(length)]
