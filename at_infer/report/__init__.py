"""One self-contained HTML page that shows what was scored, or how training went."""
