"""Code for a process that prints the most memory it has held, in KiB.

Not `getrusage`: its peak counts that of the process that started this one, and a test runner grows.
"""

from __future__ import annotations

PRINT_PEAK = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
