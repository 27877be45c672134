"""`sizes` with a million tasks and ten million events, or as many as are asked for: `make bench ONLY=sizes_by_hand
SIZE=1e6 WRITE=1`. It needs 7 GB of disk and minutes, so it runs only when it is named."""

from benchmarks import sizes
from benchmarks.figures import Result
from benchmarks.plan import Plan


def measure(plan: Plan) -> Result:
    """The same comparison."""
    return sizes.compare(plan, plan.size)
