"""From scores and a threshold to incidents, which people are notified of."""
