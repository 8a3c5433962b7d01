"""One of several processes that append to a store at a steady rate; prints its latencies and CPU time."""

import json
import sys
import time
from pathlib import Path

from benchmarks import populate
from benchmarks.append import Product
from benchmarks.raw import steadily


def main(path: str, rate: str, seconds: str) -> None:
    """Append for so many seconds, warmed up."""
    store = populate.opened(Path(path))
    product = Product(store, store.write(populate.open_plain, 1).result())
    for _ in range(5):
        product.append().result()
    # All begin together: the imports of one would disturb the measurements of another.
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    began = time.process_time()
    sample = steadily(lambda: product.append().result(), float(rate), float(seconds))
    used = time.process_time() - began
    store.close()
    sys.stdout.write(json.dumps({"latencies": list(sample.latencies), "cpu_seconds": used}))


if __name__ == "__main__":
    main(*sys.argv[1:])
