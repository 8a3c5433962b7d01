"""One of several processes that append to a store at a steady rate; prints its latencies."""

import json
import sys
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
    sample = steadily(lambda: product.append().result(), float(rate), float(seconds))
    store.close()
    sys.stdout.write(json.dumps(list(sample.latencies)))


if __name__ == "__main__":
    main(*sys.argv[1:])
