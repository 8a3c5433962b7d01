"""The engine knows what calls cost without waiting for the table of prices on its event loop."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading
from sessionary import Usage
from sessionary.app.context import open_app
from sessionary.app.engine import build_engine

threads = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("sessionary.prices", "genai_prices"):
            threads.append((name, threading.current_thread().name))

sys.meta_path.insert(0, Watch())
with open_app(home=sys.argv[1], create=True) as app:
    context = build_engine(app).context
    for each in threading.enumerate():
        if each.name == "load-prices":
            each.join()
    used = context.priced(Usage(model="claude-sonnet-4-5", input_tokens=1_000_000))
print(used.cost_microusd, threads)
"""


def test_the_engine_loads_the_table_of_prices_in_a_thread(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == (
        "6000000 [('sessionary.prices', 'load-prices')]\n",
        "",
    )
