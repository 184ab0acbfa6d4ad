//! Tests the report formats with fixed data, and runs benchmarks at a size whose numbers mean nothing.

mod names;
mod rendering;
mod tiny;
