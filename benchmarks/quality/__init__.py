"""What `at-infer train` and `at-infer score` find on labelled data with nothing but column names, beside baselines."""
