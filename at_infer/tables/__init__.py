"""All code that uses polars: Parquet and CSV in, Parquet out."""

from at_infer.tables.files import source_files
from at_infer.tables.table import Footer, Table, read_metadata, read_table, rising_columns, write_table

__all__ = ["Footer", "Table", "read_metadata", "read_table", "rising_columns", "source_files", "write_table"]
