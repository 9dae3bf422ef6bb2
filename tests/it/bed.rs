//! The bed itself.
