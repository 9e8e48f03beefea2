"""`python -m at_infer` and the script `at-infer`: nothing is imported before signals have a place to go."""

from at_infer.interrupt import end_quietly_on_signals


def main() -> None:
    """Entry point of the console script."""
    end_quietly_on_signals()
    from at_infer.cli import main as run

    run()


if __name__ == "__main__":
    main()
