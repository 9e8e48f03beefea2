"""From validation scores to the threshold above which a row is anomalous."""
