"""A real training to try reprolab on: a small transformer, real text, real processes.

``train`` starts the ranks of one training and waits for them; ``train_pair`` trains twice with the
same seed, the second time with one thing changed. What is changed travels to the processes over
their standard input as bare settings, so neither its name nor its value is in any configuration,
argument, environment variable or run name that the records hold.
"""

from reprolab.demo.faults import FAULTS
from reprolab.demo.launch import train, train_pair

__all__ = ["FAULTS", "train", "train_pair"]
