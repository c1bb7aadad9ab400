"""What to capture, when to save, how to react: plain settings, no machinery.

Everything here is a frozen dataclass that refuses nonsense, so that it can be written into a
run's configuration as it is and compared between runs.
"""

from reprolab.policy.capture import Policy

__all__ = ["Policy"]
