//! The whole conformance suite on every store, one call each.
