"""How polars keeps memory that it no longer needs; works if imported before polars."""

import os

# Back to the system soon. By default polars' allocator keeps it, and peaks of one moment and the next add up.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:200,muzzy_decay_ms:0")
