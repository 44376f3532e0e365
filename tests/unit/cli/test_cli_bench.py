import json
import os
import subprocess
import sys
import time

import pytest
from quorate.cli.bench.report import Measurement
from quorate.cli.bench.workloads import processor_seconds

WORK_50_MS = "import time\nwhile time.process_time() < 0.05: pass\nprint(flush=True)\ninput()"


def test_processor_time_is_finer_than_a_tick_of_the_kernel() -> None:
    before = processor_seconds(os.getpid())
    end = time.process_time() + 0.001
    while time.process_time() < end:
        pass
    used = processor_seconds(os.getpid()) - before
    assert used >= 0.001
    assert used % (1 / os.sysconf("SC_CLK_TCK")) != 0


def test_processor_time_is_that_of_the_named_process() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WORK_50_MS], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        own = time.process_time()
        assert processor_seconds(child.pid) >= 0.05
        assert time.process_time() - own < 0.05
        child.communicate(b"\n")
    with pytest.raises(OSError, match="Invalid argument"):
        processor_seconds(child.pid)


@pytest.mark.parametrize(
    ("value", "printed"), [(0.000123456789, 0.000123457), (28203.456, 28203.5), (7, 7.0)]
)
def test_a_line_has_the_significant_digits_of_a_figure(value: float, printed: float) -> None:
    line = Measurement("metadata", "load the checkpoint", value, "s", 1).line()
    assert json.loads(line)["value"] == printed
