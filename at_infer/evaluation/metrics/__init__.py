"""What scores and alarms are worth against labels: pure numpy, near-linear time."""
