"""`python -m at_infer` and the script `at-infer`: nothing is imported before signals have a place to go."""

import gc

from at_infer.interrupt import end_quietly_on_signals

COLLECT_EVERY = 50_000
"""Objects. Imports make hundreds of thousands and drop few; looking among them every 700 takes a tenth of the start."""


def main() -> None:
    """Entry point of the console script."""
    end_quietly_on_signals()
    gc.set_threshold(COLLECT_EVERY)
    from at_infer.cli import main as run

    try:
        run()
    finally:
        gc.freeze()  # Python looks through all that is left as it ends, which takes as long again


if __name__ == "__main__":
    main()
