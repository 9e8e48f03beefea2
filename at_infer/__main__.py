"""`python -m at_infer` is the same as `at-infer`."""

from at_infer.cli import main

main()
