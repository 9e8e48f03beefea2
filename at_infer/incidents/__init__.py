"""From scores and a threshold to incidents: what a person is told about."""
